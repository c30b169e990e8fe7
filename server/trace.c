#include "trace.h"

#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "json_out.h"
#include "str.h"
#include "text.h"

#define TRACE_ID_TIME 6u

static int trace_random(struct trace_pool *pool, uint8_t *out, size_t len, struct err *err) {
    bool zero = true;
    if (pool->left < len) {
        if (getrandom(pool->bytes, sizeof(pool->bytes), 0) != (ssize_t)sizeof(pool->bytes))
            return err_sys(err, "naming a span");
        pool->left = sizeof(pool->bytes);
    }
    pool->left -= len;
    memcpy(out, pool->bytes + pool->left, len);
    for (size_t i = 0; i < len; i++)
        zero = zero && out[i] == 0;
    if (zero) /* that is no id */
        out[len - 1] = 1;
    return 0;
}

bool trace_has_parent(const struct trace *t) {
    static const uint8_t none[TRACEPARENT_SPAN];
    return memcmp(t->parent, none, sizeof(none)) != 0;
}

bool trace_is_set(const struct trace *t) {
    static const uint8_t none[TRACEPARENT_ID];
    return memcmp(t->id, none, sizeof(none)) != 0;
}

static void trace_under(struct trace *t, const uint8_t *id, const uint8_t *span) {
    memcpy(t->id, id, sizeof(t->id));
    memcpy(t->parent, span, sizeof(t->parent));
}

/* A trace of our own begins with the time (48 bits of milliseconds), then 80 random bits: the store
 * has an index of them, and what is written at its end touches one page instead of many. */
static int trace_new_id(struct trace_pool *pool, uint8_t id[TRACEPARENT_ID], struct err *err) {
    uint64_t ms = clock_real_ms();
    for (size_t i = 0; i < TRACE_ID_TIME; i++)
        id[i] = (uint8_t)(ms >> (8 * (TRACE_ID_TIME - 1 - i)));
    return trace_random(pool, id + TRACE_ID_TIME, TRACEPARENT_ID - TRACE_ID_TIME, err);
}

int trace_begin(struct trace_pool *pool, const struct trace_above *above, struct trace *out,
                struct err *err) {
    const struct traceparent *header = above->header;
    struct trace t;
    memset(&t, 0, sizeof(t));
    if (trace_random(pool, t.span, sizeof(t.span), err) < 0)
        return -1;
    if (above->from_id != NULL)
        (void)str_copy(t.from, sizeof(t.from), above->from_id);
    if (above->from != NULL) {
        bool near = header != NULL && memcmp(header->id, above->from->id, sizeof(t.id)) == 0;
        trace_under(&t, above->from->id, near ? header->span : above->from->span);
    } else if (header != NULL) {
        trace_under(&t, header->id, header->span);
    } else if (above->inside != NULL && trace_is_set(above->inside)) {
        trace_under(&t, above->inside->id, above->inside->span);
    } else if (trace_new_id(pool, t.id, err) < 0) {
        return -1;
    }
    *out = t;
    return 0;
}

void trace_header(const struct trace *t, char text[TRACEPARENT_TEXT]) {
    struct traceparent p;
    memcpy(p.id, t->id, sizeof(p.id));
    memcpy(p.span, t->span, sizeof(p.span));
    traceparent_write(&p, text);
}

void trace_write(struct json_out *j, const struct trace *t) {
    if (!trace_is_set(t)) {
        json_out_null(j, "trace");
        return;
    }
    json_out_open(j, "trace", '{');
    json_out_hex(j, "id", t->id, sizeof(t->id));
    json_out_hex(j, "span", t->span, sizeof(t->span));
    if (trace_has_parent(t)) {
        json_out_hex(j, "parent", t->parent, sizeof(t->parent));
    } else {
        json_out_null(j, "parent");
    }
    if (t->from[0] != '\0')
        json_out_str(j, "from", t->from);
    json_out_close(j, '}');
}

void trace_write_text(const struct trace *t, char text[TRACE_TEXT_SIZE]) {
    traceparent_hex(t->id, sizeof(t->id), text);
    text[32] = ' ';
    traceparent_hex(t->span, sizeof(t->span), text + 33);
    text[49] = ' ';
    traceparent_hex(t->parent, sizeof(t->parent), text + 50);
    text[66] = ' ';
    memcpy(text + 67, t->from, sizeof(t->from));
}

bool trace_read_text(const char *text, struct trace *t) {
    struct trace read;
    memset(&read, 0, sizeof(read));
    if (strnlen(text, 67) < 67 || text[32] != ' ' || text[49] != ' ' || text[66] != ' ' ||
        !traceparent_unhex(text, read.id, sizeof(read.id)) ||
        !traceparent_unhex(text + 33, read.span, sizeof(read.span)) ||
        !traceparent_unhex(text + 50, read.parent, sizeof(read.parent)) ||
        !str_copy(read.from, sizeof(read.from), text + 67))
        return false;
    *t = read;
    return true;
}

void trace_label(char label[TRACE_LABEL_SIZE], const char *const *argv, size_t argc) {
    size_t len = 0;
    for (size_t i = 0; i < argc && len < TRACE_LABEL_SIZE - 1; i++) {
        size_t room = TRACE_LABEL_SIZE - 1 - len, n = strnlen(argv[i], TRACE_LABEL_SIZE);
        if (i > 0) {
            label[len++] = ' ';
            room--;
        }
        n = n < room ? n : room;
        memcpy(label + len, argv[i], n);
        len += n;
    }
    len = text_utf8_prefix(label, len, NULL);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)label[i] < 0x20 || label[i] == 0x7f)
            label[i] = ' ';
    label[len] = '\0';
}

void trace_label_request(char label[TRACE_LABEL_SIZE], const struct run_request *r) {
    const char *names[TRACE_LABEL_SIZE / 2];
    size_t n = 0;
    if (r->step_count == 1) {
        trace_label(label, r->steps[0].argv, r->steps[0].argc);
        return;
    }
    while (n < r->step_count && n < sizeof(names) / sizeof(names[0])) {
        names[n] = r->steps[n].name;
        n++;
    }
    trace_label(label, names, n);
}

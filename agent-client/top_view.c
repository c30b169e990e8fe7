#include "top_view.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "say.h"

#define TOP_VIEW_TEXT 200   /* of one cell */
#define TOP_VIEW_WAITING 8u /* users that the line about the queue names */

/* Writes that stop at the first error. */
struct top_view {
    struct buf *out;
    struct err *err;
    int rc;
};

#define TOP_PUT(v, ...)                                                                            \
    do {                                                                                           \
        if ((v)->rc == 0)                                                                          \
            (v)->rc = buf_printf((v)->out, (v)->err, __VA_ARGS__);                                 \
    } while (0)

void top_view_time(char text[TOP_VIEW_SHORT], uint64_t ms) {
    unsigned s = ms / 1000 > 100u * 86400 ? 100u * 86400 : (unsigned)(ms / 1000);

    if (ms < 1000)
        snprintf(text, TOP_VIEW_SHORT, "%ums", (unsigned)ms);
    else if (s < 60)
        snprintf(text, TOP_VIEW_SHORT, "%u.%us", s, (unsigned)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(text, TOP_VIEW_SHORT, "%um%02us", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, TOP_VIEW_SHORT, "%uh%02um", s / 3600, s % 3600 / 60);
    else
        snprintf(text, TOP_VIEW_SHORT, "%ud%02uh", s / 86400, s % 86400 / 3600);
}

void top_view_bytes(char text[TOP_VIEW_SHORT], uint64_t bytes) {
    static const char units[] = "KMGTPE";
    size_t u = 0;
    unsigned shift = 10;

    if (bytes < 1024) {
        snprintf(text, TOP_VIEW_SHORT, "%u", (unsigned)bytes);
        return;
    }
    while (u + 2 < sizeof(units) && bytes >> shift >= 1024) {
        shift += 10;
        u++;
    }
    unsigned whole = (unsigned)(bytes >> shift);
    unsigned tenth = (unsigned)((bytes >> (shift - 10) & 1023) * 10 / 1024);
    if (whole < 10 && tenth > 0)
        snprintf(text, TOP_VIEW_SHORT, "%u.%u%c", whole, tenth, units[u]);
    else
        snprintf(text, TOP_VIEW_SHORT, "%u%c", whole, units[u]);
}

/* Fields; what is missing is "" and 0. */

static uint64_t top_view_u64(const json_t *object, const char *key) {
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 ? (uint64_t)n : 0;
}

static const char *top_view_text(const json_t *object, const char *key, char *clean) {
    const char *text = json_string_value(json_object_get(object, key));
    return say_clean(clean, TOP_VIEW_TEXT, text != NULL ? text : "");
}

static void top_view_time_of(const json_t *object, const char *key, char text[TOP_VIEW_SHORT]) {
    top_view_time(text, top_view_u64(object, key));
}

/* "-" when it is not known. */
static void top_view_bytes_of(const json_t *object, const char *key, char text[TOP_VIEW_SHORT]) {
    if (json_is_integer(json_object_get(object, key)))
        top_view_bytes(text, top_view_u64(object, key));
    else
        snprintf(text, TOP_VIEW_SHORT, "-");
}

/* The head. */

static void top_view_pool(struct top_view *v, const json_t *a) {
    const json_t *pool = json_object_get(a, "pool"), *rates = json_object_get(a, "per_minute");
    bool all = json_object_get(pool, "slots_in_use") != NULL;

    TOP_PUT(v, "slots ");
    if (all)
        TOP_PUT(v, "%" PRIu64 "/", top_view_u64(pool, "slots_in_use"));
    TOP_PUT(v, "%" PRIu64, top_view_u64(pool, "slots"));
    if (all)
        TOP_PUT(v, ", warm jails %" PRIu64 ", sandbox places %" PRIu64 "/%" PRIu64,
                top_view_u64(pool, "warm"), top_view_u64(pool, "sandboxes_in_use"),
                top_view_u64(pool, "sandbox_places"));
    if (json_is_object(rates))
        TOP_PUT(v, ", last minute: %" PRIu64 " accepted, %" PRIu64 " ended, %" PRIu64 " executions",
                top_view_u64(rates, "runs_accepted"), top_view_u64(rates, "runs_ended"),
                top_view_u64(rates, "executions_ended"));
    TOP_PUT(v, "\n");
}

static void top_view_kinds(struct top_view *v, const json_t *a) {
    const json_t *kinds = json_object_get(json_object_get(a, "pool"), "kinds");
    char policy[TOP_VIEW_TEXT], image[TOP_VIEW_TEXT];

    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *k = json_array_get(kinds, i);
        TOP_PUT(v, "%s %s/%s %" PRIu64, i == 0 ? "warm:" : ",", top_view_text(k, "policy", policy),
                top_view_text(k, "image", image), top_view_u64(k, "warm"));
    }
    if (json_array_size(kinds) > 0)
        TOP_PUT(v, "\n");
}

/* Who waits, and with how much. */
static void top_view_waiting(struct top_view *v, const json_t *a) {
    const json_t *users = json_object_get(a, "users");
    char clean[TOP_VIEW_TEXT];
    size_t named = 0, more = 0;

    if (top_view_u64(a, "queued") == 0)
        return;
    TOP_PUT(v, "waiting:");
    for (size_t i = 0; i < json_array_size(users); i++) {
        const json_t *u = json_array_get(users, i);
        uint64_t n = top_view_u64(u, "queued");
        if (n == 0)
            continue;
        if (named == TOP_VIEW_WAITING) {
            more++;
            continue;
        }
        const char *name = top_view_text(u, "user", clean);
        TOP_PUT(v, "%s %s %" PRIu64, named > 0 ? "," : "", name[0] != '\0' ? name : "(others)", n);
        named++;
    }
    if (more > 0)
        TOP_PUT(v, ", and %zu users more", more);
    TOP_PUT(v, "\n");
}

static void top_view_head(struct top_view *v, const json_t *a, const char *url) {
    char clean[TOP_VIEW_TEXT], up[TOP_VIEW_SHORT], where[TOP_VIEW_TEXT];
    const char *of = top_view_text(a, "of", clean);

    top_view_time_of(a, "up_ms", up);
    TOP_PUT(v, "%s  up %s  %s", say_clean(where, sizeof(where), url), up,
            strcmp(of, "all") == 0 ? "all users" : "yours only");
    if (json_is_true(json_object_get(a, "ready")))
        TOP_PUT(v, "  ready\n");
    else
        TOP_PUT(v, "  NOT READY: %s\n", top_view_text(a, "why", clean));
    TOP_PUT(v, "runs %" PRIu64 " running, %" PRIu64 " waiting  sandboxes %" PRIu64 "  ",
            top_view_u64(a, "running"), top_view_u64(a, "queued"),
            top_view_u64(a, "sandboxes_total"));
    top_view_pool(v, a);
    top_view_kinds(v, a);
    top_view_waiting(v, a);
}

/* The tables. */

/* What runs now: "73%" of a processor. */
static void top_view_busy(const json_t *row, char text[TOP_VIEW_SHORT]) {
    const json_t *live = json_object_get(row, "live");
    uint64_t percent = (top_view_u64(live, "cpus_milli") + 5) / 10;

    if (!json_is_integer(json_object_get(live, "cpus_milli")))
        snprintf(text, TOP_VIEW_SHORT, "-");
    else
        snprintf(text, TOP_VIEW_SHORT, "%u%%", (unsigned)(percent < 999999 ? percent : 999999));
}

static void top_view_run(struct top_view *v, const json_t *run) {
    char id[TOP_VIEW_TEXT], user[TOP_VIEW_TEXT], state[TOP_VIEW_TEXT], label[TOP_VIEW_TEXT];
    char age[TOP_VIEW_SHORT], cpu[TOP_VIEW_SHORT] = "-", mem[TOP_VIEW_SHORT], most[TOP_VIEW_SHORT];
    char busy[TOP_VIEW_SHORT];
    const json_t *used = json_object_get(run, "used"), *limits = json_object_get(run, "limits");
    const json_t *position = json_object_get(run, "position"), *live = json_object_get(run, "live");

    top_view_time_of(run, "age_ms", age);
    /* Of the steps that are over, and of the one that runs. */
    if (json_is_object(used) || json_is_object(live))
        top_view_time(cpu, top_view_u64(used, "cpu_ms") + top_view_u64(live, "cpu_ms"));
    top_view_busy(run, busy);
    if (json_is_object(live))
        top_view_bytes_of(live, "mem_bytes", mem);
    else
        top_view_bytes_of(used, "mem_peak_bytes", mem);
    top_view_bytes_of(limits, "mem_bytes", most);
    top_view_text(run, "state", state);
    if (json_is_integer(position))
        snprintf(state, sizeof(state), "waits %" PRIu64, top_view_u64(run, "position") + 1);
    else if (top_view_u64(run, "steps") > 1 && strcmp(state, "running") == 0)
        snprintf(state, sizeof(state), "step %" PRIu64 "/%" PRIu64, top_view_u64(run, "step") + 1,
                 top_view_u64(run, "steps"));
    top_view_text(run, "label", label);
    if (label[0] == '\0')
        snprintf(label, sizeof(label), "(%.60s)", top_view_text(run, "policy", user));
    TOP_PUT(v, "%-28s  %-10.10s  %-9.9s %6s %7s %5s %6s %6s  %s\n", top_view_text(run, "id", id),
            top_view_text(run, "user", user), state, age, cpu, busy, mem, most, label);
}

static void top_view_runs(struct top_view *v, const json_t *a) {
    const json_t *runs = json_object_get(a, "runs");
    size_t n = json_array_size(runs);
    uint64_t all = top_view_u64(a, "running") + top_view_u64(a, "queued");

    if (n == 0)
        return;
    TOP_PUT(v, "\n%-28s  %-10s  %-9s %6s %7s %5s %6s %6s  %s\n", "RUN", "USER", "STATE", "AGE",
            "CPU", "NOW", "MEM", "LIMIT", "WHAT");
    for (size_t i = 0; i < n; i++)
        top_view_run(v, json_array_get(runs, i));
    if (all > n)
        TOP_PUT(v, "and %" PRIu64 " more\n", all - n);
}

static void top_view_sandbox(struct top_view *v, const json_t *sb) {
    char id[TOP_VIEW_TEXT], user[TOP_VIEW_TEXT], state[TOP_VIEW_TEXT];
    char age[TOP_VIEW_SHORT], left[TOP_VIEW_SHORT], mem[TOP_VIEW_SHORT], most[TOP_VIEW_SHORT];
    char disk[TOP_VIEW_SHORT], busy[TOP_VIEW_SHORT];
    const json_t *used = json_object_get(sb, "used"), *live = json_object_get(sb, "live");

    top_view_time_of(sb, "age_ms", age);
    top_view_time_of(sb, "expires_in_ms", left);
    if (json_is_object(live))
        top_view_bytes_of(live, "mem_bytes", mem);
    else
        top_view_bytes_of(used, "mem_peak_bytes", mem);
    top_view_busy(sb, busy);
    top_view_bytes_of(used, "disk_bytes", disk);
    top_view_bytes_of(json_object_get(sb, "limits"), "mem_bytes", most);
    TOP_PUT(v, "%-28s  %-10.10s  %-9.9s %6s %7s %5s %6s %6s  %6s  %" PRIu64 "/%" PRIu64 "\n",
            top_view_text(sb, "id", id), top_view_text(sb, "user", user),
            top_view_text(sb, "state", state), age, left, busy, mem, most, disk,
            top_view_u64(sb, "running"), top_view_u64(sb, "executions"));
}

static void top_view_sandboxes(struct top_view *v, const json_t *a) {
    const json_t *list = json_object_get(a, "sandboxes");
    size_t n = json_array_size(list);

    if (n == 0)
        return;
    TOP_PUT(v, "\n%-28s  %-10s  %-9s %6s %7s %5s %6s %6s  %6s  %s\n", "SANDBOX", "USER", "STATE",
            "AGE", "LEFT", "NOW", "MEM", "LIMIT", "DISK", "COMMANDS");
    for (size_t i = 0; i < n; i++)
        top_view_sandbox(v, json_array_get(list, i));
    if (top_view_u64(a, "sandboxes_total") > n)
        TOP_PUT(v, "and %" PRIu64 " more\n", top_view_u64(a, "sandboxes_total") - n);
}

int top_view_write(struct buf *out, const json_t *answer, const char *url, struct err *err) {
    struct top_view v = {.out = out, .err = err};

    if (!json_is_array(json_object_get(answer, "runs")) ||
        !json_is_array(json_object_get(answer, "sandboxes")))
        return err_set(err, ERR_PROTOCOL, 0, "the server's answer is not what top expects");
    top_view_head(&v, answer, url);
    top_view_runs(&v, answer);
    top_view_sandboxes(&v, answer);
    return v.rc;
}

/* Bytes of the first `cols` characters; the text is clean, so each has one column. */
static size_t top_view_cut(const char *line, size_t len, unsigned cols) {
    unsigned n = 0;

    for (size_t i = 0; i < len; i++)
        if (((unsigned char)line[i] & 0xc0) != 0x80 && n++ == cols)
            return i;
    return len;
}

int top_view_paint(struct buf *out, const char *text, unsigned rows, unsigned cols,
                   struct err *err) {
    size_t lines = 0, shown;

    for (const char *at = text; *at != '\0'; at++)
        lines += *at == '\n';
    shown = lines <= rows ? lines : rows - 1;
    if (buf_puts(out, "\x1b[H", err) < 0)
        return -1;
    for (size_t i = 0; i < shown; i++) {
        size_t len = strcspn(text, "\n");

        /* The rest of the row is wiped; behind the last row there is no new one. */
        if (buf_append(out, text, top_view_cut(text, len, cols), err) < 0 ||
            buf_puts(out, i + 1 < rows ? "\x1b[K\r\n" : "\x1b[K", err) < 0)
            return -1;
        text += len + 1;
    }
    if (shown < lines) {
        char more[64];
        int n = snprintf(more, sizeof(more), "... %zu lines more", lines - shown);
        if (buf_append(out, more, top_view_cut(more, (size_t)n, cols), err) < 0 ||
            buf_puts(out, "\x1b[K", err) < 0)
            return -1;
    }
    return buf_puts(out, "\x1b[J", err);
}

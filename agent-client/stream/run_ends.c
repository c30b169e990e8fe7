#include "run_ends.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_exit.h"
#include "str.h"

int run_ends_init(struct run_ends *r, size_t count, struct err *err) {
    struct run_ends_step *steps = calloc(count > 0 ? count : 1, sizeof(*steps));

    if (steps == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the steps");
    r->steps = steps;
    r->count = count;
    return 0;
}

void run_ends_done(struct run_ends *r) {
    if (r == NULL)
        return;
    free(r->steps);
    *r = (struct run_ends){0};
}

void run_ends_take(struct run_ends *r, size_t step, const struct json_t *event) {
    struct run_ends_step *s;
    json_int_t wall =
        json_integer_value(json_object_get(json_object_get(event, "usage"), "wall_ms"));

    if (step >= r->count)
        return;
    s = &r->steps[step];
    if (end_json_decode(json_object_get(event, "end"), &s->end, NULL) < 0)
        end_init(&s->end, CAUSE_INTERNAL);
    s->ended = true;
    s->wall_ms = wall > 0 ? (uint64_t)wall : 0;
}

long run_ends_failed(const struct run_ends *r, const struct run_body *body) {
    long failed = -1;

    for (size_t i = 0; i < r->count; i++)
        if (r->steps[i].ended && !end_ok(&r->steps[i].end) &&
            (!run_body_continues(body, i) || failed < 0))
            failed = (long)i;
    return failed;
}

int run_ends_exit_code(const struct run_ends *r, const struct run_body *body, bool ok) {
    long failed = ok ? -1 : run_ends_failed(r, body);
    int code;

    if (ok)
        return 0;
    if (failed < 0)
        return CLIENT_EXIT_TROUBLE;
    code = end_exit_code(&r->steps[failed].end);
    return code != 0 ? code : CLIENT_EXIT_TROUBLE;
}

/* " after 2.0 s" where time is part of the story. */
static void run_ends_after(const struct run_ends_step *s, char *dst, size_t size) {
    char figure[32];

    *dst = '\0';
    if (s->end.cause != CAUSE_WALL_TIME && s->end.cause != CAUSE_CPU_TIME &&
        s->end.cause != CAUSE_MEMORY)
        return;
    if (s->wall_ms == 0)
        return;
    str_human_ms(figure, sizeof(figure), s->wall_ms);
    snprintf(dst, size, " after %s", figure);
}

/* The sentence within a sentence: small first letter, no full stop. */
static void run_ends_clause(const struct run_ends_step *s, char *dst, size_t size) {
    size_t len;

    end_message(&s->end, dst, size);
    len = strlen(dst);
    if (len > 0 && dst[len - 1] == '.')
        dst[len - 1] = '\0';
    if (isupper((unsigned char)dst[0]) && !isupper((unsigned char)dst[1]))
        dst[0] = (char)tolower((unsigned char)dst[0]);
}

void run_ends_explain(const struct run_ends *r, const struct run_body *body, bool ok, char *dst,
                      size_t size) {
    long failed = ok ? -1 : run_ends_failed(r, body);
    const struct run_ends_step *s;
    char clause[END_MESSAGE_MAX], after[48], space[32];

    *dst = '\0';
    if (ok)
        return;
    if (failed < 0) {
        snprintf(dst, size, "the run ended without a result");
        return;
    }
    s = &r->steps[failed];
    run_ends_clause(s, clause, sizeof(clause));
    run_ends_after(s, after, sizeof(after));
    if (r->count > 1)
        snprintf(dst, size, "step %ld of %zu (%s): %s%s", failed + 1, r->count,
                 run_body_step_name(body, (size_t)failed, space, sizeof(space)), clause, after);
    else if (s->end.cause != CAUSE_EXIT)
        snprintf(dst, size, "%s%s", clause, after);
}

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "audit_tool.h"
#include "clock.h"
#include "json_memory.h"
#include "str.h"

/* One of the two chains while they are merged by time. */
struct audit_show_side {
    struct audit_tool_lines lines;
    const char *line;
    size_t len;
    json_t *object; /* NULL = no more, or no record */
    uint64_t time_ms;
    int rc;
};

/* "2026-01-31", "2026-01-31T12:00:00Z" or a duration before now. */
static int audit_show_since(const char *text, uint64_t *ms, struct err *err) {
    struct tm tm = {0};
    uint64_t ago;
    if (text == NULL) {
        *ms = 0;
        return 0;
    }
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end != NULL && *end == 'T')
        end = strptime(end, "T%H:%M:%S", &tm);
    if (end != NULL && (*end == '\0' || strcmp(end, "Z") == 0)) {
        *ms = (uint64_t)timegm(&tm) * 1000;
        return 0;
    }
    if (str_duration_ms(text, &ago, NULL) < 0)
        return err_set(
            err, ERR_INVALID, 0,
            "--since takes a day (2026-01-31), a time (2026-01-31T12:00:00Z) or how long "
            "ago (90m)");
    *ms = clock_real_ms() - ago;
    return 0;
}

static void audit_show_next(struct audit_show_side *s, struct err *err) {
    json_decref(s->object);
    s->object = NULL;
    s->rc = audit_tool_lines_next(&s->lines, &s->line, &s->len, err);
    if (s->rc != 1)
        return;
    s->object = json_memory_load(s->line, s->len, 0, NULL);
    json_int_t time = json_integer_value(json_object_get(s->object, "time"));
    if (time > 0)
        s->time_ms = (uint64_t)time;
}

static bool audit_show_is(const json_t *object, const char *key, const char *wanted) {
    const char *value = json_string_value(json_object_get(object, key));
    return wanted == NULL || (value != NULL && strcmp(value, wanted) == 0);
}

static void audit_show_value(const char *key, const json_t *value) {
    char text[300];
    if (json_is_string(value)) {
        str_escape(text, sizeof(text), json_string_value(value), json_string_length(value));
        printf(" %s=%s", key, text);
    } else if (json_is_integer(value)) {
        printf(" %s=%" JSON_INTEGER_FORMAT, key, json_integer_value(value));
    } else if (json_is_boolean(value)) {
        printf(" %s=%s", key, json_is_true(value) ? "yes" : "no");
    }
}

/* What a line for people leaves out: it is in its front, or says nothing to them. */
static bool audit_show_leaves_out(const char *key) {
    static const char *const keys[] = {"seq",  "time",           "type",        "prev",      "hash",
                                       "user", "policy_sha256",  "argv_sha256", "signature", "id",
                                       "what", "receipt_sha512", NULL};
    for (size_t i = 0; keys[i] != NULL; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return strstr(key, "sha256") != NULL;
}

static void audit_show_text(const char *chain, const json_t *object) {
    static const char *const front[] = {"what", "id", "user"};
    time_t seconds = (time_t)(json_integer_value(json_object_get(object, "time")) / 1000);
    const char *type = json_string_value(json_object_get(object, "type"));
    char when[32] = "", word[64];
    struct tm tm;
    const char *key;
    json_t *value;
    if (gmtime_r(&seconds, &tm) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    str_escape(word, sizeof(word), type != NULL ? type : "?", strlen(type != NULL ? type : "?"));
    printf("%s %s %" JSON_INTEGER_FORMAT " %s", when, chain,
           json_integer_value(json_object_get(object, "seq")), word);
    for (size_t i = 0; i < 3; i++)
        audit_show_value(front[i], json_object_get(object, front[i]));
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!audit_show_leaves_out(key))
            audit_show_value(key, value);
    }
    putchar('\n');
}

static void audit_show_one(const struct audit_show_side *s, const struct audit_show_options *o,
                           uint64_t since) {
    if (s->object == NULL || s->time_ms < since || !audit_show_is(s->object, "user", o->user) ||
        !audit_show_is(s->object, "type", o->type) || !audit_show_is(s->object, "id", o->id))
        return;
    if (o->json)
        printf("%.*s\n", (int)s->len, s->line);
    else
        audit_show_text(s->lines.chain, s->object);
}

int audit_show(int server_dir, const struct audit_show_options *o, struct err *err) {
    struct audit_show_side sides[2] = {0};
    uint64_t since = 0;
    if (audit_show_since(o->since, &since, err) < 0)
        return -1;
    int rc = audit_tool_lines_open(&sides[0].lines, server_dir, AUDIT_LOG_SERVER, err);
    if (rc == 0)
        rc = audit_tool_lines_open(&sides[1].lines, server_dir, AUDIT_LOG_COMMANDS, err);
    for (int i = 0; i < 2 && rc == 0; i++)
        audit_show_next(&sides[i], err);
    while (rc == 0 && (sides[0].rc == 1 || sides[1].rc == 1)) {
        bool second = sides[0].rc != 1 || (sides[1].rc == 1 && sides[1].time_ms < sides[0].time_ms);
        audit_show_one(&sides[second], o, since);
        audit_show_next(&sides[second], err);
    }
    if (rc == 0 && (sides[0].rc < 0 || sides[1].rc < 0))
        rc = -1;
    for (int i = 0; i < 2; i++) {
        json_decref(sides[i].object);
        audit_tool_lines_close(&sides[i].lines);
    }
    return rc;
}

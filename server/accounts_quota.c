#include "accounts_quota.h"

#include <jansson.h>
#include <string.h>

#include "json_memory.h"
#include "str.h"

void accounts_quota_unlimited(struct quota_limits *q) {
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        q->v[i] = QUOTA_UNLIMITED;
}

void accounts_quota_write(struct json_out *j, const char *key, const struct quota_limits *q,
                          bool all) {
    json_out_open(j, key, '{');
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        if (q->v[i] < QUOTA_NONE)
            json_out_u64(j, quota_name(i), q->v[i]);
        else if (all)
            json_out_null(j, quota_name(i));
        else if (q->v[i] == QUOTA_NONE)
            json_out_str(j, quota_name(i), "none");
    }
    json_out_close(j, '}');
}

int accounts_quota_read(const char *text, struct quota_limits *q, struct err *err) {
    json_t *root = json_memory_load(text, strlen(text), 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_INVALID, 0, "a stored quota is not a JSON object");
    }
    accounts_quota_unlimited(q);
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        const json_t *value = json_object_get(root, quota_name(i));
        if (json_is_integer(value) && json_integer_value(value) >= 0)
            q->v[i] = (uint64_t)json_integer_value(value);
        else if (json_is_string(value))
            q->v[i] = QUOTA_NONE;
    }
    json_decref(root);
    return 0;
}

static int accounts_quota_value(enum quota_kind kind, const char *text, uint64_t *value,
                                struct err *err) {
    if (strcmp(text, "none") == 0 || strcmp(text, "default") == 0) {
        *value = text[0] == 'n' ? QUOTA_NONE : QUOTA_UNLIMITED;
        return 0;
    }
    switch (kind) {
    case QUOTA_MEM_BYTES:
    case QUOTA_DISK_BYTES:
    case QUOTA_RESULT_BYTES:
    case QUOTA_SNAPSHOT_BYTES:
        return str_bytes(text, value, err);
    case QUOTA_CPU_MS_PER_DAY:
        return str_duration_ms(text, value, err);
    default:
        return str_u64(text, 0, INT64_MAX, value, err);
    }
}

int accounts_quota_set(struct quota_limits *q, const char *word, struct err *err) {
    size_t len = strcspn(word, "=");
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        const char *name = quota_name(i);
        if (strlen(name) != len || memcmp(name, word, len) != 0 || word[len] != '=')
            continue;
        return accounts_quota_value(i, word + len + 1, &q->v[i], err) < 0
                   ? err_wrap(err, "the quota %s", name)
                   : 0;
    }
    return err_set(err, ERR_INVALID, 0,
                   "a quota is NAME=VALUE, NAME=none or NAME=default with one of the names runs, "
                   "parallel_runs, sandboxes, mem_bytes, disk_bytes, cpu_ms_per_day, result_bytes "
                   "and snapshot_bytes, not %.60s",
                   word);
}

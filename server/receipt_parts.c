#include "receipt_parts.h"

#include <sodium.h>
#include <string.h>

#include "clock.h"
#include "receipt_run.h"

/* In the order of their names. */
static const enum limit_id receipt_parts_order[LIMIT_COUNT] = {
    LIMIT_CPU_MS, LIMIT_CPUS_MILLI,  LIMIT_DISK_BYTES, LIMIT_FILE_BYTES,
    LIMIT_INODES, LIMIT_MEM_BYTES,   LIMIT_OPEN_FILES, LIMIT_OUTPUT_BYTES,
    LIMIT_PIDS,   LIMIT_STACK_BYTES, LIMIT_WALL_MS,
};

void receipt_parts_u64(struct json_out *j, const char *key, uint64_t value) {
    json_out_u64(j, key, value <= INT64_MAX ? value : INT64_MAX);
}

void receipt_parts_limits(struct json_out *j, const struct limits *limits) {
    json_out_open(j, "limits", '{');
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        receipt_parts_u64(j, limit_info(receipt_parts_order[i])->name,
                          limits->v[receipt_parts_order[i]]);
    json_out_close(j, '}');
}

void receipt_parts_end(struct json_out *j, const struct step_end *end) {
    json_out_open(j, "end", '{');
    json_out_str(j, "cause", cause_name(end->cause));
    if (end->exit_code >= 0)
        json_out_i64(j, "exit_code", end->exit_code);
    if (end->limit != 0) {
        receipt_parts_u64(j, "limit", end->limit);
        receipt_parts_u64(j, "observed", end->observed);
    }
    if (end->signal != 0)
        json_out_i64(j, "signal", end->signal);
    json_out_close(j, '}');
}

void receipt_parts_usage(struct json_out *j, const struct wire_usage *u) {
    json_out_open(j, "usage", '{');
    receipt_parts_u64(j, "cpu_system_ms", u->cpu_system_ns / CLOCK_NS_PER_MS);
    receipt_parts_u64(j, "cpu_user_ms", u->cpu_user_ns / CLOCK_NS_PER_MS);
    receipt_parts_u64(j, "mem_peak_bytes", u->mem_peak_bytes);
    receipt_parts_u64(j, "wall_ms", u->wall_ns / CLOCK_NS_PER_MS);
    json_out_close(j, '}');
}

void receipt_parts_output(struct json_out *j, const char *key, const struct capture *c,
                          uint8_t hash[32]) {
    struct capture_text text;
    struct iovec parts[2 * CAPTURE_PIECES + 1];
    char line[CAPTURE_LINE_SIZE];
    crypto_hash_sha256_state state;
    capture_text(c, &text);
    int n = capture_view(c, 0, text.head, parts);
    if (text.omitted > 0) {
        capture_line(text.omitted, line);
        parts[n++] = (struct iovec){.iov_base = line, .iov_len = strlen(line)};
    }
    if (text.tail > 0)
        n += capture_view(c, c->total - text.tail, text.tail, parts + n);
    crypto_hash_sha256_init(&state);
    for (int i = 0; i < n; i++)
        crypto_hash_sha256_update(&state, parts[i].iov_base, parts[i].iov_len);
    crypto_hash_sha256_final(&state, hash);
    json_out_open(j, key, '{');
    receipt_parts_u64(j, "bytes", c->total);
    receipt_parts_u64(j, "omitted", text.omitted);
    receipt_inputs_hex(j, "sha256", hash);
    json_out_close(j, '}');
}

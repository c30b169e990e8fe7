/* The audit log as a killed server, or somebody else, left it: it is opened and goes on, and its
 * newest segment holds whole lines only. Parts are separated by 0xff: the segment, the head. */
#include "audit_log.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)];
    struct err err = {0};
    struct audit_log_found found = {0};
    struct audit_log_head head;
    struct buf fields;
    struct audit_log *log = calloc(1, sizeof(*log));
    size_t len[2];
    const uint8_t *part[2];
    for (int i = 0; i < 2; i++)
        part[i] = fuzz_part(&data, &size, &len[i]);
    int dir = fuzz_dir(path);
    fuzz_require(log != NULL && mkdirat(dir, "audit", 0700) == 0);
    fuzz_file(dir, "audit/log-000000000001.jsonl", part[0], len[0]);
    if (len[1] > 0)
        fuzz_file(dir, "audit.head", part[1], len[1]);
    (void)audit_log_head_read(dir, "log", &head, &err);
    if (audit_log_open(log, dir, "log", &found, &err) == 0) {
        uint64_t seq = log->last.seq;
        buf_init(&fields, 4096);
        fuzz_require(buf_append(&fields, "\"type\":\"x\"", 10, &err) == 0);
        if (audit_log_add(log, &fields, &err) == 0) {
            fuzz_require(audit_log_write(log, &err) == 0);
            fuzz_require(log->last.seq == seq + 1 && log->written.seq == seq + 1);
        }
        buf_done(&fields);
        audit_log_close(log);
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    free(log);
    fuzz_remove(dir, path);
    return 0;
}

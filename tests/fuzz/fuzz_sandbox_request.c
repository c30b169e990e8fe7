/* The bodies of requests for sandboxes and snapshots: what is let through keeps the promises of
 * sandbox_request.h, what is refused comes with a sound error. The first byte chooses. */
#include "sandbox_request.h"

#include "fuzz.h"
#include "str.h"
#include "text.h"

static void check_error(const struct api_error *e) {
    fuzz_require(e->status == 400 || e->status == 413);
    fuzz_require(e->code[0] != '\0' && e->message[0] != '\0');
    fuzz_require(text_is_utf8(e->message, strlen(e->message)) &&
                 text_is_utf8(e->field, strlen(e->field)));
}

static void check_sandbox(const struct sandbox_request *r) {
    fuzz_require(r->policy == NULL || str_is_name(r->policy));
    fuzz_require(r->image == NULL || str_is_name(r->image));
    fuzz_require(r->from == NULL || strlen(r->from) <= SANDBOX_REQUEST_REF_MAX);
    fuzz_require(r->ttl_ms <= SANDBOX_REQUEST_TIME_MAX_MS);
    fuzz_require(r->idle_ms <= SANDBOX_REQUEST_TIME_MAX_MS);
    for (size_t i = 0; i < r->env.count; i++)
        fuzz_require(strchr(r->env.items[i], '=') > r->env.items[i]);
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        fuzz_require(!r->limits.set[id] ||
                     (r->limits.values.v[id] >= info->min && r->limits.values.v[id] <= info->max));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sandbox_request r;
    struct api_error error = {0};
    char name[SANDBOX_REQUEST_NAME_MAX + 1] = "", ref[SANDBOX_REQUEST_REF_MAX + 1] = "";
    uint64_t ttl_ms = 0;
    uint32_t count = 0;
    int rc;
    if (size == 0)
        return 0;
    char *json = fuzz_text(data + 1, size - 1);
    switch (data[0] % 5) {
    case 0:
        rc = sandbox_request_decode(json, size - 1, &r, &error);
        if (rc == 0) {
            check_sandbox(&r);
            sandbox_request_done(&r);
        }
        break;
    case 1:
        rc = sandbox_request_ttl(json, size - 1, &ttl_ms, &error);
        fuzz_require(rc != 0 || (ttl_ms >= SANDBOX_REQUEST_TIME_MIN_MS &&
                                 ttl_ms <= SANDBOX_REQUEST_TIME_MAX_MS));
        break;
    case 2:
        rc = sandbox_request_fork(json, size - 1, &count, &error);
        fuzz_require(rc != 0 || (count >= 1 && count <= SANDBOX_REQUEST_FORK_MAX));
        break;
    case 3:
        rc = sandbox_request_snapshot(json, size - 1, name, &error);
        fuzz_require(rc != 0 || text_is_utf8(name, strlen(name)));
        break;
    default:
        rc = sandbox_request_restore(json, size - 1, ref, &error);
        fuzz_require(rc != 0 || ref[0] != '\0');
        break;
    }
    if (rc != 0)
        check_error(&error);
    free(json);
    return 0;
}

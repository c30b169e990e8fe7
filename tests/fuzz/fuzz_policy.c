/* The policy reader against any bytes: it never crashes, and what it lets through is within the
 * bounds that hold for every policy. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void check_policy(const struct policy *p, const uint8_t *data, size_t size) {
    struct err err;
    require(strcmp(p->name, "default") == 0);
    require(p->text_size == size && memcmp(p->text, data, size) == 0);
    require(limit_check(&p->preset, &p->ceiling, &err) == 0);
    for (int id = 0; id < LIMIT_COUNT; id++)
        require(p->ceiling.v[id] <= limit_info((enum limit_id)id)->max);
    require((p->writable & WIRE_WRITABLE_WORKSPACE) != 0);
    require((p->writable & ~(uint32_t)WIRE_WRITABLE_ALL) == 0);
    require((p->end_on & ~(uint32_t)END_ON_ALL) == 0);
    require(p->network == WIRE_NETWORK_NONE && p->max_steps >= 1 && p->max_steps <= 256);
    require(p->syscalls == POLICY_SYSCALLS_DEFAULT || p->syscalls == POLICY_SYSCALLS_STRICT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct policy p;
    struct err err;
    if (policy_parse("default", (const char *)data, size, &p, &err) == 0) {
        check_policy(&p, data, size);
        policy_done(&p);
    } else {
        require(err.kind == ERR_INVALID && err.text[0] != '\0');
    }
    return 0;
}

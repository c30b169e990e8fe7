#include "agent_stuck.h"

#include <sodium.h>
#include <string.h>

static bool agent_stuck_count(unsigned char last[32], unsigned *times,
                              const unsigned char now[32]) {
    if (*times > 0 && memcmp(last, now, 32) == 0) {
        ++*times;
    } else {
        memcpy(last, now, 32);
        *times = 1;
    }
    return *times >= AGENT_STUCK_TIMES;
}

bool agent_stuck_action(struct agent_stuck *s, const char *tool, const char *arguments,
                        const char *outcome) {
    crypto_hash_sha256_state h;
    unsigned char now[32];
    const char *const texts[] = {tool, arguments, outcome};
    crypto_hash_sha256_init(&h);
    for (size_t i = 0; i < 3; i++)
        crypto_hash_sha256_update(&h, (const unsigned char *)texts[i], strlen(texts[i]) + 1);
    crypto_hash_sha256_final(&h, now);
    return agent_stuck_count(s->action, &s->actions, now);
}

bool agent_stuck_failing(struct agent_stuck *s, const char *set) {
    unsigned char now[32];
    if (set[0] == '\0') {
        s->failures = 0;
        return false;
    }
    crypto_hash_sha256(now, (const unsigned char *)set, strlen(set));
    return agent_stuck_count(s->failing, &s->failures, now);
}

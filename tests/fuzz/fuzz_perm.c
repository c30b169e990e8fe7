/* Any bytes as a command under rules that deny one program and allow the rest: no crash, always a
 * verdict, and a command that is not understood is never allowed. */
#include "perm.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char rules[] = "deny exec curl **\nask exec npm install **\nallow exec ls **\n"
                                "allow exec echo **\nallow exec cd *\nallow exec env **\n"
                                "allow exec bash **\nallow exec xargs **\nallow exec find **\n"
                                "deny read **/.env\ndeny write .git/**\nallow write out/**\n"
                                "allow exec eval **\nallow exec git **\nallow exec cat <path>*\n";
    struct perm_config config = {.headless = size % 2 == 0};
    struct rule_set set;
    struct perm perm = {0};
    const struct perm_verdict *v;

    if (rule_set_init(&set, "/w", "/h", NULL) < 0 ||
        rule_load(&set, RULE_USER, true, "r", rules, sizeof(rules) - 1, NULL) < 0 ||
        perm_init(&perm, &set, &config, NULL) < 0)
        abort();
    v = perm_judge(&perm, (const char *)data, size);
    if (v->verdict == RULE_NONE || (config.headless && v->verdict == RULE_ASK))
        abort();
    for (size_t i = 0; i < v->count; i++)
        if ((v->parts[i].opaque && v->parts[i].verdict == RULE_ALLOW) ||
            v->parts[i].verdict > v->verdict)
            abort();
    if (v->verdict == RULE_ALLOW && v->count == 0)
        abort();
    perm_done(&perm);
    rule_set_done(&set);
    return 0;
}

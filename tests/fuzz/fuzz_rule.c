/* Any bytes as a file of rules: refused with a line, or loaded so that it can be used. */
#include "rule.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "perm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct perm_config config = {0};
    struct rule_set set;
    struct perm perm = {0};
    struct err err = {0};

    if (rule_set_init(&set, "/w", "/h", NULL) < 0)
        abort();
    if (rule_load(&set, RULE_USER, true, "f", (const char *)data, size, &err) < 0) {
        if (strncmp(err.text, "f:", 2) != 0)
            abort();
    } else {
        if (perm_init(&perm, &set, &config, NULL) < 0)
            abort();
        (void)perm_check_examples(&perm, &err);
        (void)perm_judge(&perm, "git push && cat <.env >out", 26);
        (void)perm_judge_subject(&perm, RULE_NET, "example.org:443");
    }
    perm_done(&perm);
    rule_set_done(&set);
    return 0;
}

#include "run.h"

struct run_keep {
    size_t count;
    char (*keys)[WIRE_NAME_MAX]; /* one for each step; "" = none */
};

const char *run_keep_key(const struct run *run, size_t index) {
    const struct run_keep *k = run->keep;
    return k != NULL && index < k->count && k->keys[index][0] != '\0' ? k->keys[index] : NULL;
}

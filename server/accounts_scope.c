#include "accounts_scope.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bit;
} accounts_scope_table[] = {
    {"run", ACCOUNTS_RUN},     {"sandbox", ACCOUNTS_SANDBOX}, {"files", ACCOUNTS_FILES},
    {"admin", ACCOUNTS_ADMIN}, {"metrics", ACCOUNTS_METRICS}, {"read", ACCOUNTS_READ},
};
#define ACCOUNTS_SCOPE_COUNT (sizeof(accounts_scope_table) / sizeof(accounts_scope_table[0]))

const char *accounts_scope_name(unsigned i, unsigned *bit) {
    if (i >= ACCOUNTS_SCOPE_COUNT)
        return NULL;
    *bit = accounts_scope_table[i].bit;
    return accounts_scope_table[i].name;
}

void accounts_scope_names(unsigned scopes, const char *between,
                          char out[ACCOUNTS_SCOPE_NAMES_SIZE]) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ACCOUNTS_SCOPE_COUNT && len < ACCOUNTS_SCOPE_NAMES_SIZE; i++) {
        if ((scopes & accounts_scope_table[i].bit) == 0)
            continue;
        int n = snprintf(out + len, ACCOUNTS_SCOPE_NAMES_SIZE - len, "%s%s", len > 0 ? between : "",
                         accounts_scope_table[i].name);
        len += (size_t)n;
    }
}

unsigned accounts_scope_bit(const char *name, size_t len) {
    for (size_t i = 0; i < ACCOUNTS_SCOPE_COUNT; i++)
        if (strlen(accounts_scope_table[i].name) == len &&
            memcmp(accounts_scope_table[i].name, name, len) == 0)
            return accounts_scope_table[i].bit;
    return 0;
}

int accounts_scope_parse(const char *list, unsigned *scopes, struct err *err) {
    unsigned got = 0;
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ",");
        unsigned bit = accounts_scope_bit(at, len);
        if (bit == 0)
            return err_set(err, ERR_INVALID, 0,
                           "there is no scope %.*s; there are run, sandbox, files, admin, metrics "
                           "and read",
                           len < 40 ? (int)len : 40, at);
        got |= bit;
        at += len;
        if (*at == '\0')
            break;
    }
    *scopes = got;
    return 0;
}

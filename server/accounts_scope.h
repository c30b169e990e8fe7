/* The names of scopes: "run", "sandbox", "files", "admin", "metrics", "read". */
#pragma once

#include "accounts.h"

#define ACCOUNTS_SCOPE_NAMES_SIZE 96

/* "run or read": the names of all that are set, with `between` between them ("" when none is). */
void accounts_scope_names(unsigned scopes, const char *between,
                          char out[ACCOUNTS_SCOPE_NAMES_SIZE]);
/* The bit of a name of `len` bytes; 0 = there is no such scope. */
unsigned accounts_scope_bit(const char *name, size_t len);
/* "run,read" -> bits. ERR_INVALID names what is none. */
int accounts_scope_parse(const char *list, unsigned *scopes, struct err *err);
/* The name of the i-th scope, NULL = there are no more; its bit is in *bit. */
const char *accounts_scope_name(unsigned i, unsigned *bit);

/* Who is asking: bearer tokens, of which only hashes are known (token.h).
 *
 * The list is read again as soon as its file changes, so a token that was taken out is refused at
 * the next request. A list that cannot be read lets nobody in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "err.h"
#include "log.h"
#include "token.h"

struct auth {
    struct log *log; /* borrowed */
    struct token_list tokens;
    struct stat seen; /* of the file that was read */
    bool loaded;
};

/* Reads STATE/server/tokens (relative to the current directory). */
int auth_start(struct auth *a, struct log *log, struct err *err);
void auth_stop(struct auth *a);

/* The value of an Authorization header (NULL: there was none) -> whose it is, borrowed until the
 * next call, or NULL. */
const struct token_record *auth_check(struct auth *a, const char *header);

/* The token in "Bearer TOKEN": NULL when the header has any other form. Points into `header`. */
const char *auth_bearer(const char *header);

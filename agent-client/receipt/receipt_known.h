/* The receipt keys of servers as this client knows them: the key that a server shows at the first
 * use is kept, in a file of its own in the client's state directory, and from then on only that one
 * counts. As with the host keys of ssh, the first use itself proves nothing about the server; it
 * shows that whoever answers later is the same, and a key that comes from somewhere else, given by
 * the user, does prove it. */
#pragma once

#include <limits.h>

#include "err.h"
#include "receipt.h"

/* 64 hexadecimal digits, or the name of a file with them. */
int receipt_known_read(const char *text, struct receipt_public *out, struct err *err);

/* The key of the server at `url`: 1, or 0 when none is known. -1: it cannot be told, which is not
 * the same as none. `path` (may be NULL) gets the name of the file in any case but -1. */
int receipt_known_find(const char *url, struct receipt_public *out, char path[PATH_MAX],
                       struct err *err);
/* Keeps it. ERR_STATE when another one became known meanwhile. */
int receipt_known_keep(const char *url, const struct receipt_public *key, struct err *err);

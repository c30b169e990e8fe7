/* Small files in STATE/server that must survive the machine, written by the server or by root for
 * it. */
#pragma once

#include <stddef.h>

#include "err.h"

/* Whole or not at all, mode 0600, on the disk when it returns. As root the file gets the owner of
 * the directory before it has its name, so that whoever owns the directory cannot put another file
 * in its place. */
int audit_file_write(int dir, const char *name, const void *data, size_t len, struct err *err);
/* As root: gives an open file to the owner of the directory. */
int audit_file_give(int fd, int dir, struct err *err);

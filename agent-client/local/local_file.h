/* Reading what the user named: regular files, never through a symbolic link, bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"

/* Appends the contents of `path` to `out`. *executable (may be NULL): may its owner execute it? */
int local_file_read(const char *path, struct buf *out, bool *executable, struct err *err);
/* Appends everything that descriptor `fd` gives. */
int local_file_read_fd(int fd, const char *what, struct buf *out, struct err *err);

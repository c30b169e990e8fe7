/* The answer of `pack` (fileop.h) as a tar archive: pax, names relative to what was packed. FIFOs,
 * sockets and devices are left out, and so is what could not be read. */
#pragma once

#include "buf.h"
#include "err.h"
#include "fileop_parse.h"

struct tar_write;

/* Appends to `out` (borrowed). `name`: of the only entry, when a single file is packed. NULL:
 * memory is short. LC_CTYPE must be UTF-8: in the "C" locale libarchive would not write names that
 * are not ASCII as everybody else reads them. */
struct tar_write *tar_write_new(struct buf *out, const char *name, struct err *err);
void tar_write_free(struct tar_write *t); /* NULL allowed */
/* The next record. -1: the archive cannot be finished (a file changed under it, `out` is full). */
int tar_write_item(struct tar_write *t, const struct fileop_item *item, struct err *err);
/* The end of the archive. */
int tar_write_end(struct tar_write *t, struct err *err);

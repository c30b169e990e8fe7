/* Reads a tar archive (also gzipped) that somebody sent and writes it as the records that `unpack`
 * (fileop.h) takes. Every byte of it is hostile. Blocks, and ends the process when memory is
 * short (libarchive does): for a process of its own.
 *
 * Refused, by name: absolute paths and "..", of entries and of hard links' targets; devices, FIFOs,
 * sockets; names that are too long; contents and entries beyond the limits. Set-id bits are
 * dropped. Symbolic links may say anything: whoever unpacks follows none. */
#pragma once

#include <stdint.h>

#include "fileop.h"

enum tar_read_code {
    TAR_READ_OK = 0,
    TAR_READ_DAMAGED,   /* no tar, cut short, or broken */
    TAR_READ_REFUSED,   /* an entry that is not taken */
    TAR_READ_TOO_LARGE, /* contents or entries beyond the limits */
    TAR_READ_CLOSED,    /* nobody reads the records */
    TAR_READ_MEMORY,    /* our fault: the archive may well be good */
};

struct tar_read_result {
    enum tar_read_code code;
    uint64_t entries, bytes; /* that were written */
    char entry[256];         /* the name of the entry that is at fault, escaped; "" = none */
    char why[128];           /* half a sentence, ASCII */
};

/* From `in` to its end, to `out`; closes neither. END is written only when all went well.
 * LC_CTYPE must be UTF-8: in the "C" locale libarchive refuses names that are not ASCII. */
void tar_read_run(int in, int out, uint64_t max_bytes, uint64_t max_entries,
                  struct tar_read_result *result);

/* "./a//b/" -> "a/b", "" = the root itself. NULL when all is well, else what is wrong with it. */
const char *tar_read_path(const char *path, char out[FILEOP_PATH_MAX + 1]);

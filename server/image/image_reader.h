/* Reads a tar (plain, or packed with gzip, bzip2, xz or zstd) and writes image records. */
#pragma once

#include <stdint.h>

struct archive;
/* Libarchive's reader of a tar at its current position; NULL when it is none, or memory is short.
 */
struct archive *image_reader_archive(int tar);

enum image_reader_what {
    IMAGE_READER_ALL,       /* a root file system: every entry as it is */
    IMAGE_READER_ENTRIES,   /* a layer: all but its whiteouts */
    IMAGE_READER_WHITEOUTS, /* a layer: only these */
};

/* For a child after fork: gives up user, groups, new descriptors, files and processes. -1 with
 * errno. `keep_a` and `keep_b` are the descriptors that it goes on using. */
int image_reader_drop(int keep_a, int keep_b);

/* Reads the archive at `tar` from its current position and writes records to `out` until END or
 * ERROR. Stops by itself after `max_bytes` of file contents and `max_files` entries: a packed
 * archive may be endless. -1 only when `out` cannot be written. */
int image_reader_run(int tar, int out, uint64_t max_bytes, uint64_t max_files,
                     enum image_reader_what what);

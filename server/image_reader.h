/* Reads a tar (plain, or packed with gzip, bzip2, xz or zstd) and writes image records. */
#pragma once

#include <stdint.h>

/* For a child after fork: gives up user, groups, new descriptors, files and processes. -1 with
 * errno. `keep_a` and `keep_b` are the descriptors that it goes on using. */
int image_reader_drop(int keep_a, int keep_b);

/* Reads the archive at `tar` from its current position and writes records to `out` until END or
 * ERROR. Stops by itself after `max_bytes` of file contents and `max_files` entries: a packed
 * archive may be endless. -1 only when `out` cannot be written. */
int image_reader_run(int tar, int out, uint64_t max_bytes, uint64_t max_files);

/* A file of a sandbox as JSON: {"path", "type", "mode", "size", "mtime_ms", "inode", "nlink",
 * "target"}. A name that is not UTF-8 comes as base64 in "path_base64" ("target_base64") instead.
 */
#pragma once

#include "fileop.h"
#include "json_out.h"

/* `key` or `key_base64`, whichever the bytes need. */
void file_json_name(struct json_out *j, const char *key, const char *key_base64, const char *name);
/* An ENTRY record as an object (an element of an array, or the outermost value). */
void file_json_entry(struct json_out *j, const struct fileop_record *rec, const char *path,
                     const char *target);
/* Milliseconds since the epoch. */
int64_t file_json_ms(int64_t ns);

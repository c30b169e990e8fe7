/* Small JSON files in the state directory that must survive the server, not the machine: what they
 * tell of ends with the machine's processes, so nothing waits for the disk. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct json_t;

/* A new reference to an object, or NULL. */
struct json_t *store_file_read(int dir, const char *name, size_t max, struct err *err);
/* Removes everything below `dir` (O_RDONLY), except for the entry `keep` (NULL = none). Follows no
 * link; what cannot be removed stays. */
void store_file_empty(int dir, const char *keep);

void store_file_hex(const uint8_t *bytes, size_t len, char *out); /* 2 * len + 1 */
int store_file_unhex(const char *text, uint8_t *out, size_t len);

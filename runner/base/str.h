/* Text: bounded copies, strict number parsing, names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

/* Copies `src` into dst[size]; false (and dst untouched) when it does not fit with its NUL. */
bool str_copy(char *dst, size_t size, const char *src);

/* Decimal, no sign, no blanks, no leading '+'; min <= value <= max. */
int str_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value, struct err *err);
/* "64", "64k", "256M", "1G" (powers of 1024) -> bytes. As the others here, what it refuses it shows
 * (escaped, cut at 47 bytes): nothing that is secret may be read with it. */
int str_bytes(const char *text, uint64_t *bytes, struct err *err);
/* "1500ms", "30s", "5m", "2h"; a bare number is seconds -> milliseconds. */
int str_duration_ms(const char *text, uint64_t *ms, struct err *err);

/* A name as policies, images and users have: [A-Za-z0-9_][A-Za-z0-9_.-]{0,62}. */
bool str_is_name(const char *text);

/* Writes `len` bytes as printable ASCII into dst[size], NUL-terminated: other bytes, '"', '\' and
 * '%' become \xNN; cut with "..." when too long. For logs and messages that show hostile text. */
void str_escape(char *dst, size_t size, const void *data, size_t len);

/* FNV-1a, for tables of names that are bounded: whoever chooses the names can make them collide. */
uint32_t str_hash(const void *data, size_t len);

/* "150 ms", "2.0 s", "64.0 MiB" for people. */
void str_human_ms(char *dst, size_t size, uint64_t ms);
void str_human_bytes(char *dst, size_t size, uint64_t bytes);

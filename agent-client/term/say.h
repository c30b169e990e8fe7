/* What the client says to people, on stderr: one line each, "pinfold: …". Texts may come from a
 * server or from inside a jail, so control and direction characters never reach the terminal. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* One line. Cut at 2,000 bytes. */
void say_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Copies UTF-8 `text` into dst[size]: control characters, invalid bytes and characters that change
 * the direction or are invisible become '?'; cut at a character boundary. Returns dst. */
const char *say_clean(char *dst, size_t size, const char *text);

/* Writes cleaned text to `out`; NULL prints nothing. */
void say_put(FILE *out, const char *text);

/* Number of terminal columns, one per character: enough for tables of names and sentences. */
size_t say_columns(const char *text);

/* The output of a program, line by line: without colours, without carriage returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct verify_lines {
    const char **at; /* NUL-terminated, point into the text */
    size_t count;
};

/* Cuts `text` (which is changed, and must stay) into lines. NULs become '?', escape sequences of
 * terminals (CSI, OSC, charset) go away, of "a\rb" only b stays, as on a terminal. */
int verify_lines_split(struct buf *text, struct verify_lines *out, struct err *err);
void verify_lines_done(struct verify_lines *lines);

/* Does `line` begin with `prefix`? Then *rest (may be NULL) is what follows. */
bool verify_lines_after(const char *line, const char *prefix, const char **rest);
/* Without leading blanks. */
const char *verify_lines_trim(const char *line);
/* "12 passed" somewhere in the line, as a word after the number: the number, or 0. */
uint64_t verify_lines_number_before(const char *line, const char *word);
/* A decimal at *p, which moves behind it. false: there is none. */
bool verify_lines_number(const char **p, uint64_t *value);
/* "path/file.ext:12" or "path/file.ext:12:5…" at the start of `text`: copies the path, cut, and
 * the line. The path has no blank, and holds a '.' or a '/'. */
#define VERIFY_LINES_PATH_SIZE 512
bool verify_lines_place(const char *text, char path[VERIFY_LINES_PATH_SIZE], uint64_t *line);

/* A conservative parser of bash: what it accepts, bash 5 accepts and understands in the same way;
 * what it is not sure of, it refuses. Pure: it reads the text and nothing else, and runs nothing.
 *
 * Bounds: BASH_TEXT_MAX bytes, BASH_DEPTH_MAX levels of nesting, BASH_COMMANDS_MAX simple commands,
 * and the maximum of the arena. */
#pragma once

#include <stddef.h>

#include "arena.h"
#include "bash_ast.h"

#define BASH_TEXT_MAX ((size_t)16 * 1024)
#define BASH_DEPTH_MAX 40u
#define BASH_COMMANDS_MAX 512u
#define BASH_BRACE_MAX 64u /* words that one brace expansion may become */

struct bash_result {
    struct bash_node *tree; /* NULL when it holds no command at all; lives in the arena */
    size_t commands;        /* simple commands in it */
    const char *why;        /* static text: why it was refused; NULL = parsed */
    size_t at;              /* where, in bytes from the start */
};

/* Returns 0, or -1 with result->why. */
int bash_parse(struct arena *arena, const char *text, size_t len, struct bash_result *result);

/* Is every byte of it visible text? NULL, or a static text that names what is not: NUL, control
 * characters other than newline and tab, invalid UTF-8, characters that are invisible, change the
 * direction or look like a blank. *at is where. */
const char *bash_visible(const char *text, size_t len, size_t *at);

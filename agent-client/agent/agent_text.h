/* Texts for a model: bounded, head and tail, with a word about what is between. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

/* Appends at most about `max` bytes of `text`: the first and the last half, cut at ends of lines
 * where there are some near, and between them one line that says how many bytes and lines are left
 * out and how to get them (`handle`, NULL = not at all). Bytes that are not UTF-8 become '?'. */
int agent_text_bound(struct buf *out, const char *text, size_t len, size_t max, const char *handle,
                     struct err *err);
/* What a person would see of a program's output at the end: escape sequences are gone, of a line
 * that was written over and over ('\r', '\b') the last state stays. The bytes that are left are
 * copied as they are. */
int agent_text_plain(struct buf *out, const char *text, size_t len, struct err *err);
/* Holds bytes that no text has: NUL, or much that is not UTF-8. */
bool agent_text_is_binary(const char *text, size_t len);
/* Tokens that a text may cost, guessed high: no tokenizer is at hand. */
uint64_t agent_text_tokens(const char *text);
/* Copies with everything that is not UTF-8 or a control character (but \n and \t) made '?'. */
int agent_text_clean(struct buf *out, const char *text, size_t len, struct err *err);
/* Appends lines `from` … `from + count - 1` (from 1), each with its number: "   12\ttext". Returns
 * through *total how many lines there are. */
int agent_text_lines(struct buf *out, const char *text, size_t len, size_t from, size_t count,
                     size_t *total, struct err *err);

/* The edit tool: replaces one piece of a text by another. Pure.
 *
 * The piece must be there exactly once. When it is not there as given, four small differences that
 * models make are tried, one after the other, and each only counts when it is then there exactly
 * once: CR LF for LF, blanks at ends of lines, another indentation of all lines alike, and copied
 * line numbers ("   12<tab>"). What stands in the file decides about line ends and indentation of
 * the new text. Otherwise nothing is changed, and the message says where it nearly is. */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"

#define AGENT_EDIT_MAX ((size_t)16 * 1024 * 1024)

/* 0: the new text is in *out (initialised here); *line is where the change begins. -1: ERR_INVALID
 * with a message for the model. */
int agent_edit(const char *text, size_t len, const char *old, const char *fresh, struct buf *out,
               size_t *line, struct err *err);

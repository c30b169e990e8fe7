/* The files that went into a run, against a local directory. */
#pragma once

#include "receipt_match.h"

struct json_t;

/* Adds a sentence for each file of the body's files_in that is not in `dir` as it was. Modes count
 * only where the receipt has no list; then all files below `dir` must be those that went in. */
void receipt_tree_check(struct receipt_match *m, const char *dir, const struct json_t *body);

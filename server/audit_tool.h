/* What the parts of `pinfold-server audit` share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit_log.h"
#include "audit_verify.h"
#include "err.h"

/* STATE/server -> fd, or -1. */
int audit_tool_open(const char *state, struct err *err);

/* Checks both chains; `v` are two, zeroed but for what the caller sets in the first (key, problem,
 * arg, expect), which the second gets as well. -1: could not be read. */
int audit_tool_verify(struct audit_verify v[2], int server_dir, struct err *err);

/* The lines of all segments of a chain, one after the other. */
struct audit_tool_lines {
    const char *chain;
    int dir; /* owned */
    uint64_t *first;
    size_t count, next;
    struct buf data;
    size_t pos;
};
int audit_tool_lines_open(struct audit_tool_lines *l, int server_dir, const char *chain,
                          struct err *err);
void audit_tool_lines_close(struct audit_tool_lines *l);
/* 1 = *line (borrowed until the next call), 0 = no more, -1 = cannot be read. */
int audit_tool_lines_next(struct audit_tool_lines *l, const char **line, size_t *len,
                          struct err *err);

/* audit_show.c */
struct audit_show_options {
    const char *user, *type, *since, *id;
    bool json;
};
int audit_show(int server_dir, const struct audit_show_options *o, struct err *err);
/* audit_prune.c: removes whole segments that are older; those that are left are not touched. */
struct audit_prune_options {
    uint64_t days;
    const char *to; /* a directory that gets copies; NULL = none */
};
int audit_prune(int server_dir, const struct audit_prune_options *o, struct err *err);

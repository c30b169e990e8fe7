/* The parts of a trace as a tree: who hangs under whom, in the order in which it is printed. Pure.
 *
 * A part hangs under the one whose span is its parent; when no part has that span (it belongs to
 * another program, or is not kept any more), under the run that its token came from; else it is a
 * root. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TRACE_TREE_DEPTH 32 /* deeper ones are shown at this depth */
#define TRACE_TREE_PREFIX (4 * TRACE_TREE_DEPTH + 1)

struct trace_part {
    const char *id, *span, *parent, *from; /* borrowed; parent and from may be NULL */
    size_t depth;                          /* 0 = a root */
    bool last;                             /* no sister comes behind it */
    size_t above;                          /* index of what it hangs under, SIZE_MAX = nothing */
};

/* Fills in above, depth and last, and `order`: the indices of all `count` parts from top to bottom;
 * sisters stay in the order in which they are given. -1: memory is short. */
int trace_tree_order(struct trace_part *parts, size_t count, size_t *order);
/* The lines in front of a part: "|   `-- " for one of the third level, "" for a root. */
void trace_tree_prefix(const struct trace_part *parts, size_t index,
                       char prefix[TRACE_TREE_PREFIX]);

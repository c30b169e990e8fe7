#include "trace_tree.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* First child and next sister of each; the last entry of `child` is of the roots. */
struct trace_tree {
    size_t *child, *sister;
};

static size_t trace_tree_find(const struct trace_part *parts, size_t count, size_t self) {
    const struct trace_part *p = &parts[self];

    for (size_t i = 0; p->parent != NULL && i < count; i++)
        if (i != self && strcmp(parts[i].span, p->parent) == 0)
            return i;
    for (size_t i = 0; p->from != NULL && i < count; i++)
        if (i != self && strcmp(parts[i].id, p->from) == 0)
            return i;
    return SIZE_MAX;
}

/* What a server says need not be a tree: whoever closes a ring becomes a root. */
static bool trace_tree_rings(const struct trace_part *parts, size_t count, size_t self) {
    size_t steps = 0;

    for (size_t at = parts[self].above; at != SIZE_MAX; at = parts[at].above)
        if (at == self || ++steps > count)
            return true;
    return false;
}

static void trace_tree_link(struct trace_part *parts, size_t count, struct trace_tree *t) {
    for (size_t i = 0; i < count; i++)
        parts[i].above = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        parts[i].above = trace_tree_find(parts, count, i);
        if (trace_tree_rings(parts, count, i))
            parts[i].above = SIZE_MAX;
    }
    for (size_t i = 0; i <= count; i++)
        t->child[i] = SIZE_MAX;
    /* From behind, so that the first comes first. */
    for (size_t i = count; i-- > 0;) {
        size_t under = parts[i].above != SIZE_MAX ? parts[i].above : count;

        t->sister[i] = t->child[under];
        parts[i].last = t->child[under] == SIZE_MAX;
        t->child[under] = i;
    }
}

static void trace_tree_walk(struct trace_part *parts, size_t count, const struct trace_tree *t,
                            size_t *order) {
    size_t at = t->child[count], depth = 0, n = 0;

    while (at != SIZE_MAX) {
        parts[at].depth = depth;
        order[n++] = at;
        if (t->child[at] != SIZE_MAX) {
            at = t->child[at];
            depth++;
            continue;
        }
        while (at != SIZE_MAX && t->sister[at] == SIZE_MAX) {
            at = parts[at].above;
            depth -= at != SIZE_MAX;
        }
        at = at != SIZE_MAX ? t->sister[at] : SIZE_MAX;
    }
}

int trace_tree_order(struct trace_part *parts, size_t count, size_t *order) {
    struct trace_tree t = {.child = malloc((count + 1) * sizeof(size_t)),
                           .sister = malloc((count + 1) * sizeof(size_t))};
    int rc = t.child != NULL && t.sister != NULL ? 0 : -1;

    if (rc == 0) {
        trace_tree_link(parts, count, &t);
        trace_tree_walk(parts, count, &t, order);
    }
    free(t.child);
    free(t.sister);
    return rc;
}

void trace_tree_prefix(const struct trace_part *parts, size_t index,
                       char prefix[TRACE_TREE_PREFIX]) {
    size_t depth = parts[index].depth;

    depth = depth < TRACE_TREE_DEPTH ? depth : TRACE_TREE_DEPTH;
    prefix[4 * depth] = '\0';
    for (size_t at = index, level = depth; level > 0; level--, at = parts[at].above) {
        const char *text = level == depth ? (parts[at].last ? "`-- " : "|-- ")
                                          : (parts[at].last ? "    " : "|   ");

        memcpy(prefix + 4 * (level - 1), text, 4);
    }
}

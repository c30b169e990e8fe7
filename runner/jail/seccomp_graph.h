/* What a system call filter decides, as a graph: each node looks at one word of the call and knows
 * by its value which node comes next, down to the leaves, which are answers. Equal nodes are one,
 * and neighbouring values with the same answer are one range, so that the program made of it
 * (seccomp_emit.h) is short. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

/* The words of a call in the order in which they are looked at. Arguments have two each, the upper
 * half first. */
enum { SECCOMP_WORD_ARCH, SECCOMP_WORD_NR, SECCOMP_WORD_ARGS };

/* The bits `mask` of a word are between `low` and `high`, both included. Only all bits of a word
 * can be in a range; of some, low == high. */
struct seccomp_test {
    uint32_t word, mask, low, high;
};

#define SECCOMP_TESTS_MAX 8

/* What is answered when all tests hold. */
struct seccomp_case {
    uint32_t action;
    unsigned count;
    struct seccomp_test test[SECCOMP_TESTS_MAX];
};

struct seccomp_range {
    uint32_t start; /* up to the next one's */
    unsigned node;
};

/* `count` 0: a leaf, with `action`. Else the bits `mask` of `word` choose among the ranges. */
struct seccomp_node {
    uint32_t action, word, mask;
    unsigned first, count;
};

#define SECCOMP_NODES_MAX 1024
#define SECCOMP_RANGES_MAX 4096

struct seccomp_graph {
    struct seccomp_node node[SECCOMP_NODES_MAX];
    struct seccomp_range range[SECCOMP_RANGES_MAX];
    unsigned nodes, ranges, root;
};

/* Builds the graph of `cases`, whose order does not matter: two that can both hold have the same
 * action, or it is refused with ERR_STATE. Where none holds the answer is `otherwise`. */
int seccomp_graph_build(const struct seccomp_case *cases, size_t count, uint32_t otherwise,
                        struct seccomp_graph *out, struct err *err);

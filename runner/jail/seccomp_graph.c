/* Theory of operation. The first word that any case looks at is taken, its values are divided into
 * ranges within which every case says the same, and for each range the cases that are left, less
 * what is known by now, make a graph in turn. A word of which some bits are looked at is divided by
 * their values when they are few, else by one question after the other. */
#include "seccomp_graph.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_ALL 0xffffffffu
#define GRAPH_FEW_BITS 4

struct graph_builder {
    struct seccomp_graph *g;
    uint32_t otherwise;
    struct err *err;
};

struct graph_cases {
    const struct seccomp_case *v;
    size_t count;
};

/* The ranges of one node while they are put together. */
struct graph_ranges {
    struct seccomp_range *v;
    unsigned count;
};

static int seccomp_graph_cases(struct graph_builder *b, struct graph_cases in, unsigned *node);

static int seccomp_graph_full(struct graph_builder *b) {
    return err_set(b->err, ERR_LIMIT, 0, "the system call filter has too many parts");
}

static int seccomp_graph_leaf(struct graph_builder *b, uint32_t action, unsigned *node) {
    struct seccomp_graph *g = b->g;
    for (unsigned i = 0; i < g->nodes; i++) {
        if (g->node[i].count == 0 && g->node[i].action == action) {
            *node = i;
            return 0;
        }
    }
    if (g->nodes == SECCOMP_NODES_MAX) {
        return seccomp_graph_full(b);
    }
    g->node[g->nodes] = (struct seccomp_node){.action = action};
    *node = g->nodes++;
    return 0;
}

static bool seccomp_graph_same(const struct seccomp_graph *g, const struct seccomp_node *a,
                               const struct seccomp_node *b) {
    return a->word == b->word && a->mask == b->mask && a->count == b->count &&
           memcmp(g->range + a->first, g->range + b->first, a->count * sizeof g->range[0]) == 0;
}

/* The node for these ranges; one that is there already if there is one. */
static int seccomp_graph_node(struct graph_builder *b, uint32_t word, uint32_t mask,
                              const struct graph_ranges *r, unsigned *node) {
    struct seccomp_graph *g = b->g;
    if (r->count == 1) {
        *node = r->v[0].node;
        return 0;
    }
    if (g->nodes == SECCOMP_NODES_MAX || r->count > SECCOMP_RANGES_MAX - g->ranges) {
        return seccomp_graph_full(b);
    }
    struct seccomp_node *n = &g->node[g->nodes];
    *n = (struct seccomp_node){.word = word, .mask = mask, .first = g->ranges, .count = r->count};
    memcpy(g->range + g->ranges, r->v, r->count * sizeof r->v[0]);
    for (unsigned i = 0; i < g->nodes; i++) {
        if (seccomp_graph_same(g, &g->node[i], n)) {
            *node = i;
            return 0;
        }
    }
    g->ranges += r->count;
    *node = g->nodes++;
    return 0;
}

static void seccomp_graph_put(struct graph_ranges *r, uint32_t start, unsigned node) {
    if (r->count == 0 || r->v[r->count - 1].node != node) {
        r->v[r->count++] = (struct seccomp_range){.start = start, .node = node};
    }
}

static struct seccomp_test *seccomp_graph_find(struct seccomp_case *c, uint32_t word) {
    for (unsigned i = 0; i < c->count; i++) {
        if (c->test[i].word == word) {
            return &c->test[i];
        }
    }
    return NULL;
}

/* What is known of a word: these bits have this value; and these others not that one. */
struct graph_fact {
    uint32_t word, mask, value, not_mask, not_value;
};

/* The case without what the fact says already; false if the fact rules it out. */
static bool seccomp_graph_learn(struct seccomp_case *c, const struct graph_fact *f) {
    for (struct seccomp_test *t; (t = seccomp_graph_find(c, f->word)) != NULL;) {
        bool range = t->low != t->high;
        if (f->mask == GRAPH_ALL && range) {
            if (f->value < t->low || f->value > t->high) {
                return false;
            }
        } else if (((f->value ^ t->low) & t->mask & f->mask) != 0 ||
                   (t->mask == f->not_mask && t->low == f->not_value)) {
            return false;
        } else if ((t->mask & ~f->mask) != 0) {
            t->mask &= ~f->mask;
            t->low = t->high = t->low & t->mask;
            return true; /* a word is in one test only: seccomp_graph_valid() */
        }
        *t = c->test[--c->count];
    }
    return true;
}

static int seccomp_graph_rest(struct graph_builder *b, struct graph_cases in,
                              const struct graph_fact *f, unsigned *node) {
    struct seccomp_case *left = malloc(in.count * sizeof *left);
    size_t count = 0;
    if (left == NULL) {
        return err_sys(b->err, "building the system call filter");
    }
    for (size_t i = 0; i < in.count; i++) {
        left[count] = in.v[i];
        count += seccomp_graph_learn(&left[count], f);
    }
    int rc = seccomp_graph_cases(b, (struct graph_cases){left, count}, node);
    free(left);
    return rc;
}

static int seccomp_graph_order(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Where some case begins or stops to hold. */
static size_t seccomp_graph_starts(struct graph_cases in, uint32_t word, uint32_t *out) {
    size_t count = 0, kept = 1;
    out[count++] = 0;
    for (size_t i = 0; i < in.count; i++) {
        struct seccomp_case c = in.v[i];
        const struct seccomp_test *t = seccomp_graph_find(&c, word);
        if (t != NULL) {
            out[count++] = t->low;
            out[count++] = t->high + 1; /* 0 behind the last value, which is a start anyway */
        }
    }
    qsort(out, count, sizeof *out, seccomp_graph_order);
    for (size_t i = 1; i < count; i++) {
        if (out[i] != out[kept - 1]) {
            out[kept++] = out[i];
        }
    }
    return kept;
}

/* `starts` are values of the bits `mask`, in order, each good for those up to the next. */
static int seccomp_graph_divide(struct graph_builder *b, struct graph_cases in, struct graph_fact f,
                                const uint32_t *starts, size_t count, unsigned *node) {
    struct graph_ranges r = {.v = calloc(count, sizeof *r.v)};
    int rc = r.v == NULL ? err_sys(b->err, "building the system call filter") : 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        unsigned next = 0;
        f.value = starts[i];
        rc = seccomp_graph_rest(b, in, &f, &next);
        if (rc == 0) {
            seccomp_graph_put(&r, starts[i], next);
        }
    }
    if (rc == 0) {
        rc = seccomp_graph_node(b, f.word, f.mask, &r, node);
    }
    free(r.v);
    return rc;
}

static int seccomp_graph_by_range(struct graph_builder *b, struct graph_cases in, uint32_t word,
                                  unsigned *node) {
    uint32_t *starts = calloc(2 * in.count + 1, sizeof *starts);
    if (starts == NULL) {
        return err_sys(b->err, "building the system call filter");
    }
    const struct graph_fact f = {.word = word, .mask = GRAPH_ALL};
    int rc = seccomp_graph_divide(b, in, f, starts, seccomp_graph_starts(in, word, starts), node);
    free(starts);
    return rc;
}

static int seccomp_graph_by_value(struct graph_builder *b, struct graph_cases in, uint32_t word,
                                  uint32_t mask, unsigned *node) {
    uint32_t values[1 << GRAPH_FEW_BITS];
    size_t count = 0;
    uint32_t value = 0;
    do {
        values[count++] = value;
        value = (value - mask) & mask; /* the next one that has no other bits */
    } while (value != 0);
    const struct graph_fact f = {.word = word, .mask = mask};
    return seccomp_graph_divide(b, in, f, values, count, node);
}

/* Have the bits of `t` its value, or not? */
static int seccomp_graph_by_question(struct graph_builder *b, struct graph_cases in,
                                     const struct seccomp_test *t, unsigned *node) {
    struct graph_fact yes = {.word = t->word, .mask = t->mask, .value = t->low};
    struct graph_fact no = {.word = t->word, .not_mask = t->mask, .not_value = t->low};
    if ((t->mask & (t->mask - 1)) == 0) {
        no = yes;
        no.value ^= t->mask;
    }
    unsigned next[2];
    if (seccomp_graph_rest(b, in, &yes, &next[0]) != 0 ||
        seccomp_graph_rest(b, in, &no, &next[1]) != 0) {
        return -1;
    }
    struct seccomp_range v[3];
    struct graph_ranges r = {.v = v};
    if (t->low != 0) {
        seccomp_graph_put(&r, 0, next[1]);
    }
    seccomp_graph_put(&r, t->low, next[0]);
    if (t->low != t->mask) {
        seccomp_graph_put(&r, t->low + 1, next[1]);
    }
    return seccomp_graph_node(b, t->word, t->mask, &r, node);
}

/* The tests of the first word that any case looks at. */
struct graph_look {
    const struct seccomp_test *first;
    uint32_t bits;
    bool whole, ranges;
};

static void seccomp_graph_look(struct graph_cases in, struct graph_look *look) {
    *look = (struct graph_look){.whole = true};
    for (size_t i = 0; i < in.count; i++) {
        for (unsigned k = 0; k < in.v[i].count; k++) {
            const struct seccomp_test *t = &in.v[i].test[k];
            if (look->first != NULL && t->word > look->first->word) {
                continue;
            }
            if (look->first == NULL || t->word < look->first->word) {
                *look = (struct graph_look){.first = t, .whole = true};
            }
            look->bits |= t->mask;
            look->whole = look->whole && t->mask == GRAPH_ALL;
            look->ranges = look->ranges || t->low != t->high;
        }
    }
}

static int seccomp_graph_cases(struct graph_builder *b, struct graph_cases in, unsigned *node) {
    for (size_t i = 0; i < in.count; i++) {
        if (in.v[i].count > 0) {
            continue;
        }
        for (size_t k = 0; k < in.count; k++) {
            if (in.v[k].action != in.v[i].action) {
                return err_set(b->err, ERR_STATE, 0, "two rules of the filter contradict");
            }
        }
        return seccomp_graph_leaf(b, in.v[i].action, node);
    }
    struct graph_look look;
    seccomp_graph_look(in, &look);
    if (look.first == NULL) {
        return seccomp_graph_leaf(b, b->otherwise, node);
    }
    if (look.whole) {
        return seccomp_graph_by_range(b, in, look.first->word, node);
    }
    if (__builtin_popcount(look.bits) <= GRAPH_FEW_BITS) {
        return seccomp_graph_by_value(b, in, look.first->word, look.bits, node);
    }
    if (look.ranges) {
        return err_set(b->err, ERR_STATE, 0, "a rule of the filter has a range among bits");
    }
    return seccomp_graph_by_question(b, in, look.first, node);
}

static bool seccomp_graph_valid(const struct seccomp_case *c) {
    for (unsigned i = 0; i < c->count; i++) {
        const struct seccomp_test *t = &c->test[i];
        for (unsigned k = 0; k < i; k++) {
            if (c->test[k].word == t->word) {
                return false;
            }
        }
        if (t->mask == 0 || t->low > t->high || ((t->low | t->high) & ~t->mask) != 0 ||
            (t->mask != GRAPH_ALL && t->low != t->high)) {
            return false;
        }
    }
    return c->count <= SECCOMP_TESTS_MAX;
}

int seccomp_graph_build(const struct seccomp_case *cases, size_t count, uint32_t otherwise,
                        struct seccomp_graph *out, struct err *err) {
    struct graph_builder b = {.g = out, .otherwise = otherwise, .err = err};
    out->nodes = out->ranges = 0;
    for (size_t i = 0; i < count; i++) {
        if (!seccomp_graph_valid(&cases[i])) {
            return err_set(err, ERR_STATE, 0, "a rule of the filter is malformed");
        }
    }
    return seccomp_graph_cases(&b, (struct graph_cases){cases, count}, &out->root);
}

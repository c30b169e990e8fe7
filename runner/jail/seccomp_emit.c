/* Theory of operation. Jumps only lead forward, so the program is put together from its end: when
 * a node is written all that follow it are there, and a place is known by how many instructions are
 * behind it. Conditional jumps reach 255 instructions; for what is further away a copy of the
 * answer, or a long jump, is put in between.
 *
 * Only instructions that the kernel can follow with nothing but the number of a call in its hand
 * are used (seccomp_is_const_allow()): it makes a bitmap of the calls that are always allowed. */
#include "seccomp_emit.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EMIT_REACH 255u
#define EMIT_SINGLES_MAX 4 /* values that are asked for one by one before a range is divided */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "which half comes first in memory");

/* Ways into a node, by what is in the accumulator: anything; its word; the bits that it looks at.
 */
enum emit_way { EMIT_LOAD, EMIT_WORD, EMIT_BITS, EMIT_WAYS };

struct emit_node {
    bool written, wanted[EMIT_WAYS];
    unsigned at[EMIT_WAYS]; /* the number of instructions behind this place, and itself */
};

struct emit {
    const struct seccomp_graph *g;
    struct emit_node node[SECCOMP_NODES_MAX];
    struct sock_filter code[BPF_MAXINSNS]; /* from the end */
    unsigned len;
    bool full;
};

/* A place to jump to: a way into a node, or a place within one. */
struct emit_place {
    unsigned node, at;
    enum emit_way way;
    bool inside;
};

static void seccomp_emit_put(struct emit *e, unsigned code, unsigned jt, unsigned jf, uint32_t k) {
    if (e->len == BPF_MAXINSNS) {
        e->full = true;
        return;
    }
    e->code[e->len++] =
        (struct sock_filter){.code = (uint16_t)code, .jt = (uint8_t)jt, .jf = (uint8_t)jf, .k = k};
}

/* Where a word is in struct seccomp_data. */
static uint32_t seccomp_emit_offset(uint32_t word) {
    if (word < SECCOMP_WORD_ARGS) {
        return word == SECCOMP_WORD_NR ? offsetof(struct seccomp_data, nr)
                                       : offsetof(struct seccomp_data, arch);
    }
    uint32_t half = word - SECCOMP_WORD_ARGS;
    return (uint32_t)offsetof(struct seccomp_data, args) + 8 * (half / 2) + (half % 2 ? 0 : 4);
}

/* Are all bits asked whether any is set? The value of the first range is 0 then, and of the second
 * anything else. */
static bool seccomp_emit_any_bit(const struct seccomp_graph *g, const struct seccomp_node *n) {
    const struct seccomp_range *r = g->range + n->first;
    return n->count == 2 && n->mask != 0xffffffffu && r[1].start <= (n->mask & -n->mask);
}

/* Is the accumulator cut down to bits? */
static bool seccomp_emit_cuts(const struct seccomp_graph *g, const struct seccomp_node *n) {
    return n->mask != 0xffffffffu && !seccomp_emit_any_bit(g, n);
}

static enum emit_way seccomp_emit_way(const struct seccomp_graph *g,
                                      const struct seccomp_node *from,
                                      const struct seccomp_node *to) {
    if (to->count == 0 || to->word != from->word) {
        return EMIT_LOAD;
    }
    if (seccomp_emit_cuts(g, from)) {
        return seccomp_emit_cuts(g, to) && to->mask == from->mask ? EMIT_BITS : EMIT_LOAD;
    }
    return EMIT_WORD;
}

static void seccomp_emit_want(struct emit *e) {
    const struct seccomp_graph *g = e->g;
    e->node[g->root].wanted[EMIT_LOAD] = true;
    for (unsigned i = 0; i < g->nodes; i++) {
        const struct seccomp_node *n = &g->node[i];
        for (unsigned k = 0; k < n->count; k++) {
            unsigned to = g->range[n->first + k].node;
            e->node[to].wanted[seccomp_emit_way(g, n, &g->node[to])] = true;
        }
    }
}

static unsigned seccomp_emit_at(const struct emit *e, const struct emit_place *p) {
    return p->inside ? p->at : e->node[p->node].at[p->way];
}

/* Brings what is too far for the next jump but one nearer. */
static void seccomp_emit_near(struct emit *e, struct emit_place *p) {
    unsigned at = seccomp_emit_at(e, p);
    if (e->len + 1 - at <= EMIT_REACH) {
        return;
    }
    const struct seccomp_node *n = &e->g->node[p->node];
    if (!p->inside && n->count == 0) {
        seccomp_emit_put(e, BPF_RET | BPF_K, 0, 0, n->action);
    } else {
        seccomp_emit_put(e, BPF_JMP | BPF_JA, 0, 0, e->len - at);
    }
    if (p->inside) {
        p->at = e->len;
    } else {
        e->node[p->node].at[p->way] = e->len;
    }
}

static struct emit_place seccomp_emit_jump(struct emit *e, unsigned op, uint32_t k,
                                           struct emit_place yes, struct emit_place no) {
    seccomp_emit_near(e, &yes);
    seccomp_emit_near(e, &no);
    seccomp_emit_near(e, &yes); /* it was the last within reach, and one more came in between */
    unsigned jt = e->len - seccomp_emit_at(e, &yes), jf = e->len - seccomp_emit_at(e, &no);
    e->full = e->full || jt > EMIT_REACH || jf > EMIT_REACH;
    seccomp_emit_put(e, BPF_JMP | op | BPF_K, jt, jf, k);
    return (struct emit_place){.at = e->len, .inside = true};
}

static struct emit_place seccomp_emit_to(const struct emit *e, const struct seccomp_node *from,
                                         unsigned to) {
    return (struct emit_place){.node = to, .way = seccomp_emit_way(e->g, from, &e->g->node[to])};
}

/* Is there one value only in range i? */
static bool seccomp_emit_single(const struct emit *e, const struct seccomp_node *n, unsigned i) {
    const struct seccomp_range *r = e->g->range + n->first;
    return i + 1 < n->count && r[i + 1].start - r[i].start <= (n->mask & -n->mask);
}

/* How many ranges from `i` on lead to `base`, save single values in between? */
static unsigned seccomp_emit_reach(const struct emit *e, const struct seccomp_node *n, unsigned i,
                                   unsigned base) {
    const struct seccomp_range *r = e->g->range + n->first;
    unsigned singles = 0, end = i;
    for (unsigned k = i; k < n->count; k++) {
        if (r[k].node == base) {
            end = k + 1;
        } else if (!seccomp_emit_single(e, n, k) || ++singles > EMIT_SINGLES_MAX) {
            break;
        }
    }
    return end - i;
}

struct emit_group {
    unsigned first, count, base;
};

/* The ranges of a node in groups: one, or several that can be told apart by single values. */
static unsigned seccomp_emit_groups(const struct emit *e, const struct seccomp_node *n,
                                    struct emit_group *out) {
    const struct seccomp_range *r = e->g->range + n->first;
    unsigned groups = 0;
    for (unsigned i = 0; i < n->count; i += out[groups++].count) {
        out[groups] = (struct emit_group){i, seccomp_emit_reach(e, n, i, r[i].node), r[i].node};
        unsigned more =
            seccomp_emit_single(e, n, i) ? seccomp_emit_reach(e, n, i, r[i + 1].node) : 0;
        if (more > out[groups].count) {
            out[groups] = (struct emit_group){i, more, r[i + 1].node};
        }
    }
    return groups;
}

static struct emit_place seccomp_emit_tree(struct emit *e, const struct seccomp_node *n,
                                           const struct emit_group *group, unsigned count) {
    const struct seccomp_range *r = e->g->range + n->first;
    if (count > 1) {
        unsigned half = count / 2;
        struct emit_place above = seccomp_emit_tree(e, n, group + half, count - half);
        struct emit_place below = seccomp_emit_tree(e, n, group, half);
        return seccomp_emit_jump(e, BPF_JGE, r[group[half].first].start, above, below);
    }
    struct emit_place next = seccomp_emit_to(e, n, group->base);
    for (unsigned i = group->first + group->count; i-- > group->first;) {
        if (r[i].node != group->base) {
            next =
                seccomp_emit_jump(e, BPF_JEQ, r[i].start, seccomp_emit_to(e, n, r[i].node), next);
        }
    }
    return next;
}

static void seccomp_emit_node(struct emit *e, unsigned i, struct emit_group *groups) {
    const struct seccomp_node *n = &e->g->node[i];
    const struct seccomp_range *r = e->g->range + n->first;
    struct emit_node *own = &e->node[i];
    if (own->written) {
        return;
    }
    own->written = true;
    if (n->count == 0) {
        seccomp_emit_put(e, BPF_RET | BPF_K, 0, 0, n->action);
        own->at[EMIT_LOAD] = e->len;
        return;
    }
    for (unsigned k = 0; k < n->count; k++) {
        seccomp_emit_node(e, r[k].node, groups);
    }
    if (seccomp_emit_any_bit(e->g, n)) {
        (void)seccomp_emit_jump(e, BPF_JSET, n->mask, seccomp_emit_to(e, n, r[1].node),
                                seccomp_emit_to(e, n, r[0].node));
    } else {
        (void)seccomp_emit_tree(e, n, groups, seccomp_emit_groups(e, n, groups));
    }
    own->at[EMIT_BITS] = e->len;
    if (seccomp_emit_cuts(e->g, n) && (own->wanted[EMIT_LOAD] || own->wanted[EMIT_WORD])) {
        seccomp_emit_put(e, BPF_ALU | BPF_AND | BPF_K, 0, 0, n->mask);
    }
    own->at[EMIT_WORD] = e->len;
    if (own->wanted[EMIT_LOAD]) {
        seccomp_emit_put(e, BPF_LD | BPF_W | BPF_ABS, 0, 0, seccomp_emit_offset(n->word));
    }
    own->at[EMIT_LOAD] = e->len;
}

static int seccomp_emit_finish(const struct emit *e, struct seccomp_program *out, struct err *err) {
    if (e->full) {
        return err_set(err, ERR_LIMIT, 0, "the system call filter is too long");
    }
    struct sock_filter *insns = calloc(e->len, sizeof *insns);
    if (insns == NULL) {
        return err_sys(err, "writing the system call filter");
    }
    for (unsigned i = 0; i < e->len; i++) {
        insns[i] = e->code[e->len - 1 - i];
    }
    *out = (struct seccomp_program){.insns = insns, .len = (unsigned short)e->len};
    return 0;
}

int seccomp_emit(const struct seccomp_graph *g, struct seccomp_program *out, struct err *err) {
    struct emit *e = calloc(1, sizeof *e);
    struct emit_group *groups = calloc(SECCOMP_RANGES_MAX, sizeof *groups);
    int rc = -1;
    if (e == NULL || groups == NULL) {
        (void)err_sys(err, "writing the system call filter");
    } else {
        e->g = g;
        seccomp_emit_want(e);
        seccomp_emit_node(e, g->root, groups);
        rc = seccomp_emit_finish(e, out, err);
    }
    free(groups);
    free(e);
    return rc;
}

/* What to do about a tree: three of them side by side (what is known of it, what is there, what is
 * wanted), and a decision for each path. Pure: no descriptor, no loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "err.h"
#include "sync_index.h"
#include "sync_request.h"
#include "sync_tree.h"

enum sync_todo {
    SYNC_KEEP,    /* nobody asked about it */
    SYNC_SAME,    /* it is as wanted */
    SYNC_HASH,    /* its contents must be looked at to know */
    SYNC_LATER,   /* the same, but others come first */
    SYNC_MAKE,    /* it is not there, or something else is */
    SYNC_SET,     /* only its mode is another */
    SYNC_DROP,    /* it is to go */
    SYNC_COVERED, /* it goes with a directory above it that goes */
};

enum sync_change { SYNC_NO_CHANGE, SYNC_CREATED, SYNC_MODIFIED, SYNC_DELETED };

/* One path. At least one of row, seen and want is not NULL. */
struct sync_node {
    const struct sync_row *row;
    const struct sync_seen *seen;
    const struct sync_entry *want;
    const unsigned char *sha256; /* of the FILE that is there; NULL: not known */
    struct sync_stamp stamp;     /* of the file or directory that is there, or that was made */
    uint8_t todo;                /* enum sync_todo */
    uint8_t change;              /* enum sync_change */
    bool stamped;                /* stamp is of now */
    bool absent;                 /* its contents became no blob: there was no room */
    uint8_t failed;              /* enum fileop_code: it could not be looked at */
    unsigned char hash[SYNC_SHA256_SIZE]; /* of contents that were looked at */
};

struct sync_plan {
    struct sync_node *nodes; /* in the order of sync_path_compare() */
    size_t count;
    uint64_t created, modified, deleted, unchanged;
    bool layered; /* the live layer began before the tree was looked at, and goes on */
    bool tight;   /* and all of the index is below it, whatever its rows say */
    bool learned; /* something is known that the index does not say */
};

/* `want` may be NULL. The plan borrows all three until sync_plan_done(). */
int sync_plan_join(struct sync_plan *p, const struct sync_index *index,
                   const struct sync_tree *tree, const struct sync_request *want, struct err *err);
void sync_plan_done(struct sync_plan *p); /* NULL allowed */

const char *sync_node_path(const struct sync_node *n, size_t *len);

/* sync: marks what is to be done, as far as it can be told; the rest is SYNC_HASH. */
void sync_plan_sync(struct sync_plan *p, bool delete);
/* changes: the same. */
void sync_plan_changes(struct sync_plan *p);
/* Before contents are kept: of what is to be looked at, that which may turn out to be as it was is
 * left SYNC_HASH, the rest is SYNC_LATER. False: there is none of the former. */
bool sync_plan_split(struct sync_plan *p);
/* It was looked at: what is as it was is out, the rest is SYNC_HASH again unless it is known. */
void sync_plan_rejoin(struct sync_plan *p);
/* A file was looked at: it has these contents and was so when it had this stamp. */
void sync_plan_hashed(struct sync_plan *p, struct sync_node *n, const unsigned char *sha256,
                      const struct sync_stamp *stamp);
/* Or it could not be. */
void sync_plan_failed(struct sync_node *n, enum fileop_code code);
/* Nothing more will be looked at: no SYNC_HASH is left. */
void sync_plan_settle_sync(struct sync_plan *p);
void sync_plan_settle_changes(struct sync_plan *p);

/* Does the plan change anything in the sandbox? */
bool sync_plan_is_idle(const struct sync_plan *p);
/* Mode of what SYNC_MAKE and SYNC_SET make. */
uint32_t sync_node_mode(const struct sync_node *n);

/* Hashes that files to be made need, each once, in order; those of empty files are left out.
 * `total` is what they have together. -1: *error (400: the same contents with two sizes; 500). */
struct sync_need {
    const unsigned char *sha256;
    uint64_t size;
    uint32_t index; /* of an entry of the request */
};
int sync_plan_needs(const struct sync_plan *p, struct sync_need **needs, size_t *count,
                    struct api_error *error);

/* Would the index afterwards, when this is applied, be the one of before? */
bool sync_plan_is_known(const struct sync_plan *p);
/* The index afterwards, into an empty one. `fresh`: sync_index_fresh(). Applied: what is there now
 * is what later changes are told against. Else: only contents were learned. */
int sync_plan_applied(const struct sync_plan *p, int64_t fresh, struct sync_index *out,
                      struct err *err);
int sync_plan_learned(const struct sync_plan *p, int64_t fresh, struct sync_index *out,
                      struct err *err);

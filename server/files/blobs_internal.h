/* What the files of the blob store share. */
#pragma once

#include <sodium.h>

#include "blobs.h"

#define BLOBS_DIR "blobs"
#define BLOBS_TMP "tmp"
#define BLOBS_OWNERS "owners"
#define BLOBS_BLOCK 4096u
#define BLOBS_NAME_SIZE 160u /* "owners/NAME/ab/cdef…" */

struct blobs_user;

/* That a user has a blob, or that it is pinned for him before it is there. */
struct blobs_link {
    struct blobs_link *chain;       /* of the hash table */
    struct blobs_link *next, *prev; /* by use, the last one first; only when present */
    struct blobs_user *user;
    uint64_t size;
    uint64_t used_ms;    /* since the epoch */
    uint64_t touched_ms; /* what the file's time says */
    unsigned pins;
    bool present;
    unsigned char sha256[BLOBS_SHA256_SIZE];
};

struct blobs_user {
    struct blobs_user *next;
    char name[64];
    uint64_t bytes, count; /* present */
    uint64_t reserved;     /* being written */
    struct blobs_link *newest, *oldest;
};

/* Pins that wait to be taken back. */
struct blobs_unpins {
    struct blobs_unpins *next;
    char user[64];
    unsigned char (*pins)[BLOBS_SHA256_SIZE]; /* the first `count` of them; owned */
    size_t count;
};

struct blobs {
    struct blobs_options options;
    int dir, tmp;
    uint64_t serial; /* of temporary names */
    struct blobs_user *users;
    struct blobs_link **table;
    size_t buckets, links;
    unsigned char seed[crypto_shorthash_KEYBYTES]; /* of the hash table */
    struct blobs_link *gone; /* evicted, in no table: their files are to be removed; by `chain` */
    struct loop_defer sweep;
    struct blobs_unpins *unpins;
    struct loop_defer unpin;
    uint64_t expired_ms; /* when blobs_expire() was last called */
};

uint64_t blobs_charge(uint64_t size);
struct blobs_user *blobs_user(struct blobs *b, const char *name, bool make);
/* "ab/cdef…", of a user when `user` is not NULL. */
void blobs_name(char name[BLOBS_NAME_SIZE], const char *user, const unsigned char *sha256);
struct blobs_link *blobs_find(struct blobs *b, const struct blobs_user *u,
                              const unsigned char *sha256);
/* Finds or makes it; NULL when memory is short. */
struct blobs_link *blobs_link(struct blobs *b, struct blobs_user *u, const unsigned char *sha256);
/* It is there now (or was used): goes to the front. */
void blobs_present(struct blobs_link *l, uint64_t size, uint64_t used_ms);
/* Evicts until `more` bytes fit beside what is there and reserved. */
int blobs_make_room(struct blobs *b, struct blobs_user *u, uint64_t more, struct err *err);
/* Makes the directories that a name is in. */
int blobs_parents(struct blobs *b, const char *name, struct err *err);

/* Forgets what is too old. */
void blobs_expire(struct blobs *b);

/* blobs_start.c */
int blobs_start(struct blobs *b, struct err *err);

/* Inside the journal. Only undo*.c and apply_changeset.c include this.
 *
 *   JOURNAL/<sha256 of the workspace's path>/
 *     lock
 *     entries/ch_0000000001        a committed entry
 *     entries/ch_0000000002.todo   one that has begun: taken back at the next start
 *     blobs/<sha256>               contents that were there before
 *     blobs/<sha256>.p             the same, in a file with others: undo_pack.c */
#pragma once

#include "buf.h"
#include "undo.h"

#define UNDO_HEX_SIZE 65
#define UNDO_NAME_SIZE (UNDO_HEX_SIZE + 2)
#define UNDO_PACK_EACH 131072u /* contents up to this size go into a pack, … */
#define UNDO_CLONE_LEAST 4096u /* … unless they are more than a block and can be shared */
#define UNDO_ENTRY_MAX ((size_t)512 * 1024 * 1024)
#define UNDO_XATTR_MAX ((size_t)64 * 1024)

/* What undo.h says of a path, and what only the journal keeps. */
struct undo_image {
    struct undo_state s; /* target is owned here */
    int64_t mtime_ns;    /* 0 = do not set */
    bool shared;         /* a file that has other names, here or elsewhere; not written down */
    char *xattrs;        /* "name=hex name=hex", owned; NULL = none */
};

struct undo_item {
    char *path; /* owned */
    struct undo_image before, after;
    int fd; /* contents of `after`; -1 = a blob of the journal, when there are any */
    uint64_t offset;
    bool mode_only; /* the contents stay */
    enum undo_outcome outcome;
};

struct undo_record {
    char id[UNDO_ID_SIZE];
    char *label, *by, *session; /* owned */
    char *rules;                /* owned; NULL = none were asked */
    char of[UNDO_ID_SIZE];      /* the entry that it undoes or redoes; "" = neither */
    bool redo, partly;          /* … with undo: `partly` when only one path of it */
    bool undone;                /* found out by undo_records_load() */
    uint64_t when_ms;
    struct undo_item *items;
    size_t count, cap;
};

/* A file that is complete, but neither durable nor there yet. */
struct undo_late {
    int fd, dir;   /* dir: of the workspace; -1: it becomes a blob */
    char temp[64]; /* its name now; "" = none */
    char name[256];
};
#define UNDO_BATCH_MAX 128u /* two descriptors each */

struct undo {
    int root, base, entries, blobs, lock;
    uint64_t next; /* number of the next entry */
    uint64_t bytes_max, age_max_ms;
    bool no_clones; /* between workspace and journal */
    bool reads;     /* without the lock: another process may change entries meanwhile */
    struct undo_late late[UNDO_BATCH_MAX];
    size_t late_count;
    struct undo_pack *pack; /* that is being written; NULL = none */
};

struct undo_records {
    struct undo_record **list; /* oldest first */
    size_t count;
};

/* undo_batch.c */
/* Takes over *fd and *dir (NULL: a blob), also on failure of a flush. When the batch is full, all
 * of it is flushed. */
int undo_batch_add(struct undo *u, int *fd, int *dir, const char *temp, const char *name,
                   struct err *err);
/* All that was added is durable, and then gets its name. On failure some may have theirs. */
int undo_batch_flush(struct undo *u, struct err *err);
/* Forgets what was added: files keep their temporary names. */
void undo_batch_drop(struct undo *u);

/* undo_blob.c */
/* Stores what is in the file `fd` (about `size` bytes), to be there after undo_batch_flush(); the
 * hash and the true number of bytes come back. */
int undo_blob_put(struct undo *u, int fd, uint64_t size, struct undo_state *s, struct err *err);
bool undo_blob_has(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE]);
/* A descriptor, and where in it the contents begin. */
int undo_blob_open(struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], uint64_t *offset,
                   struct err *err);
/* Copies `size` bytes from `in` at `offset` to `out` and compares their hash with the state's. */
int undo_blob_copy(int in, uint64_t offset, int out, const struct undo_state *s, struct err *err);

/* undo_pack.c */
/* As undo_blob_put(); 1 = it is too large for a pack, nothing is stored. */
int undo_pack_put(struct undo *u, int fd, struct undo_state *s, struct err *err);
bool undo_pack_has(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE]);
/* -1: there is no (sound) pack of that name. */
int undo_pack_open(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], uint64_t *offset);
/* A memory file with just these contents. */
int undo_pack_copy(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], struct err *err);
/* The bytes of all contents in the pack with this name. */
uint64_t undo_pack_bytes(const struct undo *u, const char *name);
/* For undo_batch_flush(): makes the pack durable; gives it its names; forgets it. */
int undo_pack_seal(struct undo *u, struct err *err);
int undo_pack_link(struct undo *u, struct err *err);
void undo_pack_drop(struct undo *u);

/* undo_tree.c: paths of the workspace. No link is followed on the way. */
/* The directory that holds `path`: a descriptor, *name its last component. -1 with errno ENOENT /
 * ENOTDIR: a parent is missing; ELOOP: a link is on the way. */
int undo_tree_parent(int root, const char *path, const char **name);
/* What is there. With `u`, contents are stored as a blob while they are hashed. 1 = it is none of
 * the known types, or a link is on the way. */
int undo_tree_look(int root, const char *path, struct undo *u, struct undo_image *image,
                   struct err *err);
bool undo_tree_same(const struct undo_state *a, const struct undo_state *b);
/* Makes `image` be at `path`, by a temporary name and rename(2); files are there after
 * undo_batch_flush(). `fd` has the contents. */
struct undo_source {
    int fd;
    uint64_t offset;
};
int undo_tree_place(struct undo *u, const char *path, const struct undo_image *image,
                    const struct undo_source *from, const char *temp, struct err *err);
/* Mode, time and attributes only. */
int undo_tree_mode(int root, const char *path, const struct undo_image *image, struct err *err);
int undo_tree_remove(int root, const char *path, enum undo_type type, struct err *err);
int undo_tree_sync_parent(int root, const char *path, struct err *err);
void undo_image_done(struct undo_image *image);
int undo_image_copy(struct undo_image *to, const struct undo_image *from, struct err *err);

/* undo_record.c */
void undo_record_free(struct undo_record *r);
struct undo_item *undo_record_add(struct undo_record *r, const char *path, struct err *err);
/* entries/ID.todo, durable; committed by undo_record_commit(). */
int undo_record_begin(struct undo *u, const struct undo_record *r, struct err *err);
int undo_record_commit(struct undo *u, const struct undo_record *r, struct err *err);
int undo_record_drop(struct undo *u, const struct undo_record *r, struct err *err);
struct undo_record *undo_record_read(struct undo *u, const char *name, struct err *err);
int undo_records_load(struct undo *u, struct undo_records *all, struct err *err);
void undo_records_done(struct undo_records *all);

/* apply_plan.c */
#define UNDO_FD_BLOB (-2) /* of a change: its contents are in the journal */
/* Finds out what is there and what can be done, and stores what will be changed. Items 0 … count-1
 * are the changes; missing parents follow. 1 = something is in the way of a change. */
int apply_plan(struct undo *u, struct undo_record *r, const struct undo_change *changes,
               size_t count, struct err *err);
/* Indexes of the items, in order of their paths; owned by the caller. */
size_t *apply_plan_order(const struct undo_record *r, struct err *err);

/* apply_changeset.c */
/* Makes the planned items, all of them or none. */
int apply_record(struct undo *u, struct undo_record *r, struct err *err);
/* Takes an entry back that was never committed. */
int apply_rollback(struct undo *u, struct undo_record *r, struct err *err);
void apply_count(const struct undo_record *r, size_t count, struct undo_result *result);

/* undo.c */
struct undo_record *undo_record_new(struct undo *u, const char *label, const char *by,
                                    const char *session, struct err *err);

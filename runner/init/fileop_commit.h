/* The second half of apply: what was made in the stage takes its places, all of it or nothing.
 *
 * Every step is a rename or can be taken back by one, and is noted; whatever fails, the notes are
 * gone through backwards. What was in a place goes into the stage under the number of the item, so
 * that it is still there until all is well. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fileop.h"
#include "fileop_path.h"

#define FILEOP_COMMIT_ITEMS_MAX 1000000u
#define FILEOP_COMMIT_TEXT_MAX (256u << 20)

enum fileop_commit_what {
    FILEOP_COMMIT_PLACE,      /* the stage's file of this number */
    FILEOP_COMMIT_DIRECTORY,  /* with mode and time */
    FILEOP_COMMIT_ATTRIBUTES, /* of a regular file that is there */
    FILEOP_COMMIT_REMOVE,
};

struct fileop_commit_item {
    uint32_t what; /* enum fileop_commit_what */
    uint32_t mode;
    size_t at; /* of its path */
    int64_t mtime_ns;
};

struct fileop_commit_note;

struct fileop_commit {
    int root;  /* the directory that all is below; borrowed */
    int stage; /* of the same file system; borrowed */
    struct fileop_commit_item *items;
    size_t count, room;
    char *text;
    size_t text_len, text_room;
    struct fileop_below below;
    struct fileop_commit_note *notes;
    size_t notes_count, notes_room;
    size_t failed; /* the item that could not be done */
    bool stuck;    /* something could not be put back: it is still in the stage */
};

void fileop_commit_init(struct fileop_commit *c, int root, int stage);
void fileop_commit_done(struct fileop_commit *c);
/* Appends an item; its number, which the stage's file of it has as its name, is count - 1 then. */
int fileop_commit_add(struct fileop_commit *c, enum fileop_commit_what what,
                      const struct fileop_record *rec, const char *path);
const char *fileop_commit_path(const struct fileop_commit *c, size_t item);
/* The name of an item's file in the stage. */
void fileop_commit_name(size_t item, char name[24]);
/* 0, or -1 with errno, c->failed, and everything as it was. */
int fileop_commit_run(struct fileop_commit *c);

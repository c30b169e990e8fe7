/* Files that have another name, and may not be sent by that one: a hard link of a secret is the
 * secret. Only looked for when there is a file with several names at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "err.h"
#include "ws_tree.h"

struct ws_links_id {
    dev_t dev;
    ino_t ino;
    nlink_t names;
};

struct ws_links {
    struct ws_links_id *ids; /* owned; in order */
    size_t count, alloc;
};

/* All files below the root that have several names, in what ignore files leave out as well: each as
 * often as it has names there, and in *denied those that may not be sent by one of them. */
int ws_links_find(const struct ws_tree_options *options, struct ws_links *all,
                  struct ws_links *denied, struct err *err);
/* Adds what options->elsewhere holds. *whole = false: it is more than could be looked through. */
int ws_links_elsewhere(const struct ws_tree_options *options, struct ws_links *denied, bool *whole,
                       struct err *err);
/* How many of its names are in the list. */
size_t ws_links_names(const struct ws_links *l, const struct ws_links_id *id);
bool ws_links_has(const struct ws_links *l, const struct ws_links_id *id);
int ws_links_add(struct ws_links *l, const struct stat *st, struct err *err);
void ws_links_done(struct ws_links *l); /* zeroed allowed */

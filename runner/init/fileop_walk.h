/* Walks a tree that hostile programs change meanwhile: without recursion, with a bounded number of
 * open directories, by descriptors, following no link. What vanishes on the way was not there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fileop.h"

/* Memory for names; a tree with more of them waiting at once is ENOMEM. */
#define FILEOP_WALK_NAMES_MAX (256u << 20)

struct fileop_node {
    int dir; /* the directory that holds it */
    const char *name;
    const char *path; /* below the root; "" when the walk keeps no paths */
    size_t path_len;
    bool is_dir;
    unsigned char type; /* DT_… */
    struct stat st;     /* zero without `stats` */
};

struct fileop_walk {
    void *arg;
    /* Each entry, parents first. -1: stop with errno. A directory is then walked, unless *enter is
     * set to false. */
    int (*visit)(void *arg, const struct fileop_node *node, bool *enter);
    /* A directory is done, all below was visited; -1: stop. May be NULL. */
    int (*leave)(void *arg, const struct fileop_node *node);
    /* `path` cannot be looked into: -1: stop. */
    int (*fault)(void *arg, const char *path, size_t len, int code);
    /* A directory cannot be opened (EACCES): make it readable and return 0. May be NULL. */
    int (*unlock)(void *arg, int dir, const char *name);
    bool stats;
    bool paths;
    bool sorted;
    bool hidden;       /* visits work in progress as well */
    uint32_t depth;    /* levels; 0 = all */
    const char *after; /* sorted: begins behind this path; NULL = at the start */
    size_t most;       /* sorted: no more visits than these are needed; 0 = all */
};

/* `root` is a directory open for reading; borrowed, its position is changed. -1 with errno. */
int fileop_walk(int root, const struct fileop_walk *w);

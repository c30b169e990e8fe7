/* The steps that build a template, for rootfs.c: run in order by its helper process. Internal to
 * the rootfs files. */
#pragma once

#include <stddef.h>

#include "err.h"
#include "mnt.h"
#include "rootfs.h"

struct rootfs_build {
    const struct rootfs_config *cfg;
    int host;          /* the old root directory, until it is dropped */
    int proc_self;     /* this process's directory in the host's /proc */
    int mnt_ns;        /* the result */
    int root;          /* root directory of the template */
    struct mnt_fs own; /* image "host": the tmpfs that is the root */
    struct mnt_fs dev;
};

enum rootfs_kind { ROOTFS_HOST = 1, ROOTFS_IMAGE = 2, ROOTFS_BOTH = 3 };

struct rootfs_step {
    const char *name; /* appears in errors and on the wire */
    int (*run)(struct rootfs_build *b, struct err *err);
    enum rootfs_kind kind;
};

extern const struct rootfs_step rootfs_steps[];
extern const size_t rootfs_step_count;

/* The device nodes of a template. */
struct rootfs_node {
    const char *name;
    unsigned maj, min;
};

#define ROOTFS_NODES 6
extern const struct rootfs_node rootfs_nodes[ROOTFS_NODES];

/* What a merged /usr makes links in / and an older layout directories. Ends with NULL. */
extern const char *const rootfs_usr_names[];

/* The last step: asks the kernel, mount by mount, whether the result is what it is meant to be. */
int rootfs_verify(struct rootfs_build *b, struct err *err);

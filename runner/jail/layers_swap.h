/* Puts mounts in the places of others in the mount namespace that the caller is in, all of them or
 * none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct layers_swap {
    const char *path; /* relative to the root, of directories that nobody can change */
    int tree;         /* a detached mount; taken */
    int back;         /* -1; what was there, while it may have to come back */
};

enum layers_swap_result {
    LAYERS_SWAP_DONE,
    LAYERS_SWAP_BUSY,   /* somebody uses one of them; all is as before */
    LAYERS_SWAP_FAILED, /* all is as before */
    LAYERS_SWAP_LOST,   /* neither */
};

/* Does somebody have a file open, mapped or as working directory there? 1 yes, 0 no. Nothing is
 * changed. */
int layers_swap_busy(const struct layers_swap *swap, size_t count, struct err *err);

/* `force`: what is open stays open and loses its place. `park`: a directory of that namespace that
 * nobody looks into; -1 = there is none, and there is a moment in which nothing is in a place. */
enum layers_swap_result layers_swap_all(struct layers_swap *swap, size_t count, bool force,
                                        int park, struct err *err);
void layers_swap_done(struct layers_swap *swap, size_t count);

/* A system call filter of realistic size for the floor loop: an allow-list of every call of the
 * host's architecture but those that a jail may not make, as a binary tree. */
#pragma once

#include <linux/filter.h>

#include "err.h"

/* Compiles it once. out->filter is owned by the caller (free() it). */
int bench_filter_make(struct sock_fprog *out, struct err *err);

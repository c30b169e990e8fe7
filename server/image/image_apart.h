/* Work on hostile bytes in a process of its own that has given up every right. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "err.h"

/* Runs in the child, with nothing but the descriptors that were kept; must not return anything that
 * points anywhere. `out` is filled in for the parent. */
typedef int image_apart_fn(const void *in, size_t len, void *out, struct err *err);

/* Forks, lets fn(in, len) fill in out[size] (at most IMAGE_APART_OUT_MAX bytes), and waits. The
 * caller checks what came: it is as trustworthy as `in` was. */
#define IMAGE_APART_OUT_MAX ((size_t)256 * 1024)
int image_apart(image_apart_fn *fn, const void *in, size_t len, void *out, size_t size,
                struct err *err);

/* Starts a child that calls fn(in, out, arg) without rights and ends; `in` is kept open in it. ->
 * the end to read from; *child is to be reaped. */
typedef int image_apart_stream_fn(int in, int out, const void *arg);
int image_apart_start(image_apart_stream_fn *fn, int in, const void *arg, pid_t *child,
                      struct err *err);
/* Waits for its end, which comes once its pipe is closed. */
int image_apart_reap(pid_t child, struct err *err);

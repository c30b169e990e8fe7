/* What goes to the stdin of an execution: read from a descriptor, sent in parts, each part kept
 * until the server has it. Every part says at which byte it begins, so that sending one again after
 * a lost connection does no harm.
 *
 * It makes no request itself: exec_input_call() says which one is due. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "escape.h"
#include "rest.h"
#include "resume.h"

#define EXEC_INPUT_MAX ((size_t)256 * 1024)

struct exec_input {
    int fd;                /* borrowed; -1 = there is no input */
    struct escape *escape; /* borrowed; keys of a terminal pass it. NULL = bytes as they are */
    bool left;             /* `~.` was typed */
    bool eof;              /* fd has no more */
    bool over;             /* the end is known there, or nobody there wants more */
    struct buf flight;     /* sent, or to be sent again; begins at byte `offset` of the input */
    struct buf next;       /* read meanwhile */
    bool closing;          /* the call on its way says that this is the end */
    uint64_t offset;
    struct resume resume;
    uint64_t again_ms; /* not before this moment; 0 = now */
    char path[256];
    struct buf answer;
    struct rest_call call;
};

void exec_input_init(struct exec_input *in, int fd, struct escape *escape);
void exec_input_done(struct exec_input *in);

/* Is it time to wait for fd? */
bool exec_input_wants(const struct exec_input *in);
/* Reads what fd has, without blocking. */
int exec_input_read(struct exec_input *in, struct err *err);
/* The request that is due, or NULL. It is valid until exec_input_answer(). */
struct rest_call *exec_input_call(struct exec_input *in, const char *sandbox, const char *id,
                                  uint64_t now_ms);
/* It is over: rc as of rest_perform(), or -1. -1 (with *err): the server refused it for good. */
int exec_input_answer(struct exec_input *in, int rc, uint64_t now_ms, struct err *err);

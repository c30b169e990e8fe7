/* Deciding on commands in a session, for those that run them: what may run, as what, and when a
 * conversation with a model goes round in circles. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "perm.h"

#define PERMISSION_DENIALS_MAX 256u

struct permission_denial {
    char *subject; /* the command or path, cut at 400 bytes */
    char *rule;    /* "FILE:LINE: rule", or NULL: the default */
    char *why;
    unsigned times;
};

struct permission_exec {
    struct perm *perm; /* borrowed */
    struct permission_denial denial[PERMISSION_DENIALS_MAX];
    size_t count;
};

enum permission_answer {
    PERMISSION_RUN,    /* as verdict->argv without a shell when that is set, else by bash */
    PERMISSION_ASK,    /* a person must be asked; never with a perm whose config is headless */
    PERMISSION_DENIED, /* recorded in the list */
    PERMISSION_LOOP,   /* denied, and the same was denied before: whoever asks does not listen */
};

void permission_exec_init(struct permission_exec *x, struct perm *perm);
void permission_exec_done(struct permission_exec *x); /* accepts a zeroed struct */

/* `*verdict` is valid until the next decision. */
enum permission_answer permission_exec_command(struct permission_exec *x, const char *command,
                                               size_t len, const struct perm_verdict **verdict);
enum permission_answer permission_exec_path(struct permission_exec *x, enum rule_kind kind,
                                            const char *path, const struct perm_verdict **verdict);
enum permission_answer permission_exec_subject(struct permission_exec *x, enum rule_kind kind,
                                               const char *subject,
                                               const struct perm_verdict **verdict);
/* A person said no to what was asked. */
enum permission_answer permission_exec_refused(struct permission_exec *x, const char *subject,
                                               const struct perm_verdict *verdict);

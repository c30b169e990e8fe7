#include "permission_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERMISSION_SUBJECT_MAX 400u

void permission_exec_init(struct permission_exec *x, struct perm *perm) {
    *x = (struct permission_exec){.perm = perm};
}

void permission_exec_done(struct permission_exec *x) {
    for (size_t i = 0; i < x->count; i++) {
        free(x->denial[i].subject);
        free(x->denial[i].rule);
        free(x->denial[i].why);
    }
    *x = (struct permission_exec){0};
}

/* The list is full or there is no memory: then nobody can tell whether it was said before, and
 * ending the loop is the safe answer. */
static enum permission_answer permission_deny(struct permission_exec *x, const char *subject,
                                              size_t len, const struct perm_verdict *v) {
    struct permission_denial *d;
    size_t cut = strnlen(subject, len < PERMISSION_SUBJECT_MAX ? len : PERMISSION_SUBJECT_MAX);

    for (size_t i = 0; i < x->count; i++)
        if (strlen(x->denial[i].subject) == cut &&
            memcmp(x->denial[i].subject, subject, cut) == 0) {
            x->denial[i].times++;
            return PERMISSION_LOOP;
        }
    if (x->count >= PERMISSION_DENIALS_MAX)
        return PERMISSION_LOOP;
    d = &x->denial[x->count];
    *d = (struct permission_denial){.times = 1};
    d->subject = strndup(subject, cut);
    d->why = strdup(v->why != NULL ? v->why : "");
    if (v->rule != NULL &&
        asprintf(&d->rule, "%s:%u: %s", v->rule->file, v->rule->line, v->rule->text) < 0)
        d->rule = NULL;
    if (d->subject == NULL || d->why == NULL) {
        free(d->subject);
        free(d->why);
        free(d->rule);
        return PERMISSION_LOOP;
    }
    x->count++;
    return PERMISSION_DENIED;
}

static enum permission_answer permission_answer(struct permission_exec *x, const char *subject,
                                                size_t len, const struct perm_verdict *v) {
    switch (v->verdict) {
    case RULE_ALLOW:
        return PERMISSION_RUN;
    case RULE_ASK:
        return PERMISSION_ASK;
    case RULE_NONE:
    case RULE_DENY:
        break;
    }
    return permission_deny(x, subject, len, v);
}

enum permission_answer permission_exec_command(struct permission_exec *x, const char *command,
                                               size_t len, const struct perm_verdict **verdict) {
    *verdict = perm_judge(x->perm, command, len);
    return permission_answer(x, command, len, *verdict);
}

enum permission_answer permission_exec_path(struct permission_exec *x, enum rule_kind kind,
                                            const char *path, const struct perm_verdict **verdict) {
    *verdict = perm_judge_path(x->perm, kind, path);
    return permission_answer(x, path, strlen(path), *verdict);
}

enum permission_answer permission_exec_subject(struct permission_exec *x, enum rule_kind kind,
                                               const char *subject,
                                               const struct perm_verdict **verdict) {
    *verdict = perm_judge_subject(x->perm, kind, subject);
    return permission_answer(x, subject, strlen(subject), *verdict);
}

enum permission_answer permission_exec_refused(struct permission_exec *x, const char *subject,
                                               const struct perm_verdict *verdict) {
    return permission_deny(x, subject, strlen(subject), verdict);
}

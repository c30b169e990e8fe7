#include "revoke.h"

#include "execs.h"
#include "server.h"

/* An answer that is on its way may arrive. */
static bool revoke_is_open(void *arg, const struct http_req *req) {
    (void)arg;
    bool answered = req->phase == HTTP_REPLIED || req->response != NULL;
    return req->token != NULL && req->token->revoked && (req->stream != NULL || !answered);
}

/* `token` may be NULL: an earlier server was asked. */
static bool revoke_is_unwanted(const struct server *s, const struct accounts_token *token,
                               const char *owner, bool *also_running) {
    const struct accounts_user *u =
        token != NULL ? token->user : accounts_user_find(s->accounts.accounts, owner);
    if (u == NULL || !accounts_is_withdrawn(u, token, also_running))
        return false;
    *also_running |= u->deleted;
    return true;
}

static bool revoke_is_run_unwanted(void *arg, const struct run *run) {
    bool also_running = false;
    return revoke_is_unwanted(arg, run->token, run->owner, &also_running) &&
           (run->phase == RUN_QUEUED || also_running);
}

static void revoke_execs(struct server *s, struct sandbox *sb) {
    struct execs *set = execs_of(sb);
    for (struct exec *x = set != NULL && set->running > 0 ? set->newest : NULL; x != NULL;
         x = x->older) {
        bool also_running = false;
        if (x->state == EXEC_RUNNING &&
            revoke_is_unwanted(s, x->token, sandbox_owner(sb), &also_running) && also_running)
            exec_kill(x, CAUSE_CANCELLED);
    }
}

static bool revoke_is_deleted(const struct server *s, const char *owner) {
    const struct accounts_user *u = accounts_user_find(s->accounts.accounts, owner);
    return u != NULL && u->deleted;
}

/* Nobody can reach them any more. What a run has kept of its steps goes with the run. */
static void revoke_snapshots(struct server *s) {
    struct snapshot *older;
    for (struct snapshot *snap = s->snapshots.newest; snap != NULL; snap = older) {
        older = snap->older;
        if (!snap->step && revoke_is_deleted(s, snap->owner))
            snapshots_remove(&s->snapshots, snap);
    }
}

void revoke_now(void *server) {
    struct server *s = server;
    struct sandbox *older;
    http_break(s->http, revoke_is_open, s);
    runs_cancel_some(&s->runs, revoke_is_run_unwanted, s);
    for (struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = older) {
        older = sandbox_older(sb);
        if (revoke_is_deleted(s, sandbox_owner(sb)))
            sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
        else
            revoke_execs(s, sb);
    }
    revoke_snapshots(s);
}

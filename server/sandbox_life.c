#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admit.h"
#include "audit.h"
#include "clock.h"
#include "fd.h"
#include "sandbox_internal.h"
#include "str.h"

static void sandbox_life_state(struct sandbox *sb, enum sandbox_state state) {
    sb->all->states[sb->state]--;
    sb->state = state;
    sb->all->states[state]++;
}

/* Its two clocks. */

static void sandbox_life_look(void *arg) {
    struct sandbox *sb = arg;
    if (clock_mono_ns() >= sb->live->expires_ns) {
        sandbox_life_end(sb, SANDBOX_END_EXPIRED, NULL);
        return;
    }
    if (!sandbox_busy(sb) && !sb->detached &&
        clock_mono_ns() >= sb->live->used_ns + sb->live->spec.idle_ms * CLOCK_NS_PER_MS) {
        sandbox_life_end(sb, SANDBOX_END_IDLE, NULL);
        return;
    }
    sandbox_life_arm(sb);
}

/* While it is busy, the end of what it is busy with is the beginning of its idle time: this looks
 * again before that can be over. */
void sandbox_life_arm(struct sandbox *sb) {
    uint64_t from = sandbox_busy(sb) || sb->detached ? clock_mono_ns() : sb->live->used_ns;
    uint64_t due = from + sb->live->spec.idle_ms * CLOCK_NS_PER_MS;
    if (sb->live->expires_ns < due)
        due = sb->live->expires_ns;
    loop_timer_at(sb->all->loop, &sb->live->life, due, sandbox_life_look, sb, NULL);
}

void sandbox_life_ttl(struct sandbox *sb, uint64_t ttl_ms) {
    struct err err;
    err_clear(&err);
    sb->live->spec.ttl_ms = ttl_ms;
    sb->live->expires_ms = clock_real_ms() + ttl_ms;
    sb->live->expires_ns = clock_mono_ns() + ttl_ms * CLOCK_NS_PER_MS;
    sandbox_touch(sb);
    sandbox_life_arm(sb);
    if (sandbox_store_write(sb, &err) < 0)
        log_err(sb->all->log, LOG_ERROR, "sandbox_not_written", &err);
}

/* Closing. */

static void sandbox_life_closed(void *arg, uint64_t cpu_ns) {
    struct sandbox *sb = arg;
    sb->live->closing = false;
    sb->live->leaving = NULL;
    sandbox_settle(sb, cpu_ns);
    loop_timer_stop(sb->all->loop, &sb->live->watchdog);
    sandbox_wait_tell(sb, true, NULL);
    sandboxes_closed(sb->all, sb);
}

/* A process that the kernel does not let die holds its jail up, and nothing else: the sandbox is
 * gone for whoever had it, and its place is free when the runner says so. */
static void sandbox_life_stuck(void *arg) {
    struct sandbox *sb = arg;
    sandboxes_log(sb->all, sb, "sandbox_stuck", "the runner did not end it in time");
    link_close_forget(sb->live->leaving);
    sandbox_life_closed(sb, UINT64_MAX);
}

static void sandbox_life_close(struct sandbox *sb, uint64_t patience_ms) {
    struct link_jail *jail = sb->live->jail;
    sb->live->jail = NULL;
    if (jail == NULL)
        return;
    if (sb->live->boundary[0] != '\0')
        link_drop_snapshot(link_of(jail), sb->live->boundary);
    sb->live->closing = true;
    sb->live->leaving = jail;
    link_close_then(jail, sandbox_life_closed, sb);
    loop_timer_at(sb->all->loop, &sb->live->watchdog,
                  clock_mono_ns() + patience_ms * CLOCK_NS_PER_MS, sandbox_life_stuck, sb, NULL);
}

/* Opening. */

void sandbox_life_fail(struct sandbox *sb, const struct api_error *why) {
    struct sandboxes *all = sb->all;
    struct api_error copy = *why;
    sandbox_life_close(sb, SANDBOX_WORK_MS); /* what may have been made of it */
    sandbox_life_state(sb, SANDBOX_GONE);
    sandboxes_log(all, sb, "sandbox_not_opened", copy.message);
    sandbox_wait_tell(sb, false, &copy);
    sandboxes_forget(all, sb);
}

static void sandbox_life_opened(void *owner) {
    struct sandbox *sb = owner;
    if (sb->state != SANDBOX_OPENING) {
        link_fail(sb->live->jail, "a sandbox was opened twice");
        return;
    }
    loop_timer_stop(sb->all->loop, &sb->live->watchdog);
    sandbox_life_state(sb, SANDBOX_READY);
    sandbox_touch(sb);
    sandbox_life_arm(sb);
    sandboxes_opened(sb->all, sb);
    sandbox_wait_tell(sb, false, NULL);
}

static void sandbox_life_ended(void *owner, const struct wire_end *end) {
    sandbox_ended(owner, end);
}

static void sandbox_life_started(void *owner, uint32_t number, int master) {
    sandbox_started(owner, number, master);
}

/* Why a jail could not be made, as HTTP says it. */
static void sandbox_life_why(const struct sandbox *sb, const struct wire_failed *failed,
                             struct api_error *error) {
    char text[WIRE_TEXT_MAX];
    str_escape(text, sizeof(text), failed->text, strlen(failed->text));
    if (failed->code == ENOTSUP)
        api_error_set(error, 422, "unavailable", NULL, "This host cannot make it: %.300s.", text);
    else if (failed->code == ENOENT && sb->live->spec.from[0] != '\0')
        api_error_set(error, 410, "gone", "/from", "The snapshot is gone.");
    else if (failed->code == ENOSPC && sb->live->spec.from[0] != '\0' &&
             strcmp(failed->stage, "volume") == 0) /* what comes before does not hold its files */
        api_error_set(error, 400, "limit_conflict", "/limits/disk_bytes",
                      "The sandbox cannot be made with these limits: %.300s.", text);
    else if (failed->code == ENOSPC)
        api_error_set(error, 507, "no_space", NULL,
                      "There is no room for the sandbox on the server: %.300s.", text);
    else
        api_error_set(error, 500, "internal", NULL, "The sandbox could not be made (%s): %.300s.",
                      failed->stage, text);
}

static void sandbox_life_failed(void *owner, const struct wire_failed *failed) {
    struct sandbox *sb = owner;
    struct api_error why;
    sb->live->jail = NULL;
    sb->all->metrics->jails_failed++;
    if (sb->state == SANDBOX_OPENING) {
        sandbox_life_why(sb, failed, &why);
        sandbox_life_fail(sb, &why);
        return;
    }
    char text[200];
    str_escape(text, sizeof(text), failed->text, strlen(failed->text));
    str_copy(sb->live->failed.stage, sizeof(sb->live->failed.stage), failed->stage);
    sb->live->failed.code = failed->code;
    sandbox_life_end(sb, SANDBOX_END_FAILED, text);
}

static void sandbox_life_lost(void *owner) {
    struct sandbox *sb = owner;
    struct api_error why;
    sb->live->jail = NULL;
    if (sb->state == SANDBOX_OPENING) {
        api_error_set(&why, 503, "no_runner", NULL,
                      "The runner went away while the sandbox was made. Try again.");
        sandbox_life_fail(sb, &why);
        return;
    }
    sandbox_op_fail_all(sb);
    if (sb->state != SANDBOX_GONE)
        sandbox_life_detach(sb);
}

/* Coming back. */

static void sandbox_life_kept_exec(void *owner, const struct wire_kept_exec *kept,
                                   const int fds[LINK_KEEP_FDS]) {
    struct sandbox *sb = owner;
    struct sandbox_kept *items = NULL;
    if (sb->detached &&
        sb->live->kept_count < link_of(sb->live->jail)->welcome.execs + (size_t)WIRE_TOLD_MAX)
        items = realloc(sb->live->kept, (sb->live->kept_count + 1) * sizeof(*items));
    if (items == NULL) {
        for (size_t i = 0; i < LINK_KEEP_FDS; i++) {
            int fd = fds[i];
            fd_close(&fd);
        }
        sandbox_life_end(sb, SANDBOX_END_FAILED, "more of it was kept than can be taken back");
        return;
    }
    sb->live->kept = items;
    items[sb->live->kept_count].exec = *kept;
    memcpy(items[sb->live->kept_count].fds, fds, sizeof(items->fds));
    sb->live->kept_count++;
}

static void sandbox_life_adopted(struct sandbox *sb, const struct wire_done *done) {
    struct err err;
    err_clear(&err);
    loop_timer_stop(sb->all->loop, &sb->live->watchdog);
    if (done->code != 0) {
        sandbox_life_end(sb, SANDBOX_END_RUNNER_ENDED, NULL);
        return;
    }
    sb->detached = false;
    sb->live->depth = -1; /* an answer may have been missed */
    sb->live->frozen = done->frozen != 0;
    sandbox_life_state(sb, sb->live->frozen ? SANDBOX_PAUSED : SANDBOX_READY);
    sandbox_touch(sb);
    sandbox_life_arm(sb);
    sandbox_take_kept(sb);
    if (sb->state != SANDBOX_GONE && sandbox_reserve_numbers(sb, &err) < 0)
        log_err(sb->all->log, LOG_ERROR, "sandbox_not_written", &err);
}

static void sandbox_life_done(void *owner, const struct wire_done *done) {
    struct sandbox *sb = owner;
    if (sb->detached && done->what == WIRE_ADOPT && strcmp(done->key, sb->id) == 0)
        sandbox_life_adopted(sb, done);
    else
        sandbox_op_done(sb, done);
}

static const struct link_jail_ops sandbox_life_ops = {
    .ended = sandbox_life_ended,
    .failed = sandbox_life_failed,
    .lost = sandbox_life_lost,
    .opened = sandbox_life_opened,
    .started = sandbox_life_started,
    .done = sandbox_life_done,
    .kept_exec = sandbox_life_kept_exec,
};

static void sandbox_life_hangs(void *arg) {
    struct sandbox *sb = arg;
    struct api_error why;
    if (sb->state != SANDBOX_OPENING) {
        sandbox_life_end(sb, SANDBOX_END_FAILED, "the runner did not give it back in time");
        return;
    }
    api_error_set(&why, 504, "timeout", NULL, "The runner did not make the sandbox in time.");
    sandbox_life_fail(sb, &why);
}

static void sandbox_life_watch(struct sandbox *sb) {
    loop_timer_at(sb->all->loop, &sb->live->watchdog,
                  clock_mono_ns() + sb->all->answer_ms * CLOCK_NS_PER_MS, sandbox_life_hangs, sb,
                  NULL);
}

int sandbox_life_open(struct sandbox *sb, struct link *link, struct err *err) {
    struct wire_open open;
    memset(&open, 0, sizeof(open));
    str_copy(open.policy, sizeof(open.policy), sb->live->spec.policy.name);
    str_copy(open.image, sizeof(open.image), sb->live->spec.image);
    memcpy(open.image_sha256, sb->live->spec.image_sha256, sizeof(open.image_sha256));
    admit_jail_limits(&sb->live->spec.limits.values, &sb->live->spec.policy, &open.limits);
    open.network = WIRE_NETWORK_NONE;
    open.flags = WIRE_OPEN_SANDBOX;
    if (warm_share_start(&sb->all->links->warm, sandbox_owner(sb), clock_mono_ns()))
        open.flags |= WIRE_OPEN_MODEST;
    if (sb->all->processors != NULL &&
        processors_opens_left(sb->all->processors, &sb->live->processors, sandbox_owner(sb)))
        open.flags |= WIRE_OPEN_LEFT;
    open.disk = sb->live->spec.disk;
    str_copy(open.key, sizeof(open.key), sb->id);
    str_copy(open.from, sizeof(open.from), sb->live->spec.from);
    sb->live->depth = sb->live->spec.from[0] == '\0' ? 0 : -1;
    sb->live->jail = link_open_sandbox(link, &sandbox_life_ops, sb);
    if (sb->live->jail == NULL)
        return err_set(err, ERR_LIMIT, 0, "%s has no room for a sandbox", link->name);
    if (link_open(sb->live->jail, &open, err) < 0) {
        link_abandon(sb->live->jail);
        sb->live->jail = NULL;
        return -1;
    }
    str_copy(sb->live->shard, sizeof(sb->live->shard), link->name);
    sandbox_life_watch(sb);
    return 0;
}

void sandbox_life_adopt(struct sandbox *sb, struct link *link) {
    const struct link_policy *policy = link_policy(link, sb->live->spec.policy.name);
    sb->live->jail = link_open_sandbox(link, &sandbox_life_ops, sb);
    if (sb->live->jail == NULL) /* there is one for each that was kept */
        return;
    link_adopt(sb->live->jail, sb->id);
    sb->live->processors.told = PROCESSORS_UNKNOWN;
    if (policy == NULL || memcmp(policy->head.sha256, sb->live->spec.policy.sha256, 32) != 0) {
        sandbox_life_end(sb, SANDBOX_END_FAILED, "its policy has changed");
        return;
    }
    sb->live->spec.policy = policy->head;
    sandbox_life_watch(sb);
}

static void sandbox_life_missing(void *arg) {
    struct sandbox *sb = arg;
    const struct link *l = links_find(sb->all->links, sb->live->shard);
    if (l != NULL && l->state != LINK_CLOSED) {
        sandbox_life_detach(sb); /* it is being greeted */
        return;
    }
    sandbox_life_end(sb, SANDBOX_END_RUNNER_DIED, NULL);
}

void sandbox_life_detach(struct sandbox *sb) {
    sb->detached = true;
    loop_timer_at(sb->all->loop, &sb->live->watchdog,
                  clock_mono_ns() + SANDBOX_SHARD_MS * CLOCK_NS_PER_MS, sandbox_life_missing, sb,
                  NULL);
}

/* The end. */

static enum cause sandbox_life_cause(enum sandbox_end why) {
    switch (why) {
    case SANDBOX_END_RUNNER_DIED:
    case SANDBOX_END_RUNNER_ENDED:
        return CAUSE_INTERRUPTED;
    case SANDBOX_END_FAILED:
        return CAUSE_INTERNAL;
    default:
        return CAUSE_CANCELLED;
    }
}

void sandbox_life_end(struct sandbox *sb, enum sandbox_end why, const char *detail) {
    struct sandboxes *all = sb->all;
    char text[256];
    if (sb->state == SANDBOX_GONE)
        return;
    if (sb->state == SANDBOX_OPENING) {
        /* Whoever asked for it has left; or it ends before it begins. */
        struct api_error error;
        api_error_set(&error, 410, "gone", NULL, "The sandbox was deleted while it was made.");
        sandbox_life_fail(sb, &error);
        return;
    }
    uint64_t patience_ms = sb->live->ops != NULL || sb->detached ? SANDBOX_WORK_MS : all->answer_ms;
    sb->why = why;
    snprintf(sb->live->detail, sizeof(sb->live->detail), "%s", detail != NULL ? detail : "");
    sb->gone_ms = clock_real_ms();
    sandbox_life_state(sb, SANDBOX_GONE);
    sb->detached = false;
    loop_timer_stop(all->loop, &sb->live->life);
    loop_timer_stop(all->loop, &sb->live->watchdog);
    sandbox_op_fail_all(sb);
    sandbox_life_close(sb, patience_ms);
    sandbox_lose_tasks(sb, sandbox_life_cause(why));
    for (size_t i = 0; i < SANDBOX_PARTS; i++)
        if (sb->live->parts[i].part != NULL && sb->live->parts[i].ops->gone != NULL)
            sb->live->parts[i].ops->gone(sb->live->parts[i].part);
    sandbox_life_text(sb, text, sizeof(text));
    sandboxes_log(all, sb, "sandbox_gone", text);
    if (all->audit != NULL)
        audit_sandbox_ended(all->audit, sb->id, sb->owner, text);
    sandboxes_gone(all, sb);
    if (!sb->live->closing)
        sandbox_wait_tell(sb, true, NULL);
}

void sandbox_life_text(const struct sandbox *sb, char *dst, size_t size) {
    static const char *const texts[SANDBOX_ENDS] = {
        [SANDBOX_END_DELETED] = "it was deleted",
        [SANDBOX_END_EXPIRED] = "its time (ttl_ms) was over",
        [SANDBOX_END_IDLE] = "nothing happened in it for idle_ms",
        [SANDBOX_END_RUNNER_DIED] = "the runner that had it died",
        [SANDBOX_END_RUNNER_ENDED] = "the runner ended it while the server was away",
        [SANDBOX_END_FAILED] = "it failed",
    };
    const char *detail = sb->live != NULL ? sb->live->detail : sb->detail;
    if (detail == NULL)
        detail = "";
    snprintf(dst, size, "The sandbox is gone: %s%s%s.", texts[sb->why],
             detail[0] != '\0' ? ": " : "", detail);
}

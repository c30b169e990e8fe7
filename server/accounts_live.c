#include "accounts_live.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "accounts_import.h"
#include "clock.h"
#include "fd.h"
#include "state.h"
#include "store_accounts.h"

/* Child tokens that are over are kept this long, for those who look at a trace. */
#define ACCOUNTS_LIVE_KEEP_MS ((uint64_t)24 * 3600 * 1000)
/* A timer must not be armed for centuries. */
#define ACCOUNTS_LIVE_LOOK_MS ((uint64_t)3600 * 1000)
#define ACCOUNTS_LIVE_EVENTS                                                                       \
    (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)

static void accounts_live_timer(void *arg);
static int accounts_live_load(struct accounts_live *l, struct err *err);

/* Waits for the next one to expire, unless it does so for one that comes before. */
static void accounts_live_expect(struct accounts_live *l, uint64_t next_ms) {
    uint64_t now = clock_real_ms();
    uint64_t wait = next_ms <= now ? 0 : next_ms - now;
    if (next_ms == ACCOUNTS_NEVER)
        return;
    if (wait > ACCOUNTS_LIVE_LOOK_MS)
        wait = ACCOUNTS_LIVE_LOOK_MS;
    uint64_t due = clock_mono_ns() + wait * CLOCK_NS_PER_MS;
    if (l->expiry.slot == 0 || l->expiry.due_ns > due)
        loop_timer_at(l->loop, &l->expiry, due, accounts_live_timer, l, NULL);
}

/* Tells of tokens that are not valid any more (or may not be), and waits for the next to expire. */
static void accounts_live_marked(struct accounts_live *l, bool tell, uint64_t next_ms) {
    if (tell && l->revoked != NULL)
        l->revoked(l->arg);
    loop_timer_stop(l->loop, &l->expiry);
    accounts_live_expect(l, next_ms);
}

static void accounts_live_timer(void *arg) {
    struct accounts_live *l = arg;
    uint64_t next_ms;
    size_t changed = accounts_mark(l->accounts, clock_real_ms(), &next_ms);
    accounts_live_marked(l, changed > 0, next_ms);
}

/* Agents make many child tokens; those that are long over are forgotten. */
static void accounts_live_purge(void *arg) {
    struct accounts_live *l = arg;
    struct err err;
    uint64_t now = clock_real_ms();
    bool any = false;
    err_clear(&err);
    for (struct accounts_token *t = NULL; (t = accounts_token_next(l->accounts, t)) != NULL;)
        any |= t->parent != NULL && t->revoked && t->created_ms + ACCOUNTS_LIVE_KEEP_MS < now;
    if (any && (store_accounts_purge(l->store, now - ACCOUNTS_LIVE_KEEP_MS, &err) < 0 ||
                accounts_live_load(l, &err) < 0))
        log_err(l->log, LOG_WARN, "tokens_not_purged", &err);
    loop_timer_at(l->loop, &l->purge, clock_mono_ns() + ACCOUNTS_LIVE_LOOK_MS * CLOCK_NS_PER_MS,
                  accounts_live_purge, l, NULL);
}

static void accounts_live_spent(void *arg, struct accounts_token *t) {
    struct accounts_live *l = arg;
    struct err err;
    err_clear(&err);
    /* What is not written now is written with what is spent next. */
    if (store_accounts_spent(l->store, t, &err) < 0)
        log_err(l->log, LOG_WARN, "spent_not_stored", &err);
}

static int accounts_live_load(struct accounts_live *l, struct err *err) {
    struct store_accounts_seen seen = {0};
    uint64_t next_ms;
    accounts_begin(l->accounts);
    if (store_accounts_load(l->store, l->accounts, &seen, err) < 0)
        return -1; /* what was known stays */
    l->seen = seen;
    accounts_end(l->accounts, clock_real_ms(), &next_ms);
    /* Also when nobody new was revoked: it may be that now what runs is to be ended, too. */
    accounts_live_marked(l, true, next_ms);
    return 0;
}

/* Only what has changed. */
static int accounts_live_update(struct accounts_live *l, struct err *err) {
    uint64_t next_ms;
    int rc = store_accounts_load(l->store, l->accounts, &l->seen, err);
    accounts_mark(l->accounts, clock_real_ms(), &next_ms);
    accounts_live_marked(l, true, next_ms);
    return rc;
}

/* A change that was made here was not committed: the store is right. */
static void accounts_live_committed(void *arg, int rc, const struct err *why) {
    struct accounts_live *l = arg;
    struct err err;
    (void)why;
    err_clear(&err);
    if (rc < 0 && accounts_live_load(l, &err) < 0)
        log_err(l->log, LOG_ERROR, "accounts_unreadable", &err);
}

static void accounts_live_wait(struct accounts_live *l) {
    l->waiter.fn = accounts_live_committed;
    l->waiter.arg = l;
    store_then(l->store, &l->waiter);
}

/* Reads now what has changed. */
static int accounts_live_read(struct accounts_live *l, struct err *err) {
    bool changed = false;
    if (accounts_live_update(l, err) < 0)
        return -1;
    int rc = accounts_import(AT_FDCWD, l->store, l->accounts, &changed, err);
    if (changed)
        accounts_live_wait(l);
    if (changed && accounts_live_update(l, rc < 0 ? NULL : err) < 0)
        return -1;
    return rc;
}

void accounts_live_written(struct accounts_live *l) {
    uint64_t next_ms;
    accounts_live_wait(l);
    accounts_mark(l->accounts, clock_real_ms(), &next_ms);
    accounts_live_marked(l, true, next_ms);
}

void accounts_live_added(struct accounts_live *l, const struct accounts_token *t) {
    accounts_live_wait(l);
    if (t != NULL)
        accounts_live_expect(l, t->expires_ms);
}

/* A file that is replaced has another inode, and the watch is on the inode. The file is made by an
 * open for reading: closing one for writing would be the next event. */
static void accounts_live_watch(struct accounts_live *l) {
    fd_cleanup int fd = open(STATE_ACCOUNTS_CHANGED,
                             O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0)
        l->watch_changed = inotify_add_watch(l->notify, STATE_ACCOUNTS_CHANGED,
                                             ACCOUNTS_LIVE_EVENTS | IN_DONT_FOLLOW);
    l->watch_tokens =
        inotify_add_watch(l->notify, STATE_TOKENS, ACCOUNTS_LIVE_EVENTS | IN_DONT_FOLLOW);
}

bool accounts_live_look(struct accounts_live *l) {
    char space[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool any = false;
    struct err err;
    while (read(l->notify, space, sizeof(space)) > 0)
        any = true;
    if (!any)
        return false;
    err_clear(&err);
    accounts_live_watch(l);
    if (accounts_live_read(l, &err) < 0)
        log_err(l->log, LOG_ERROR, "accounts_unreadable", &err);
    return true;
}

static void accounts_live_event(void *arg, uint32_t events) {
    (void)events;
    accounts_live_look(arg);
}

int accounts_live_start(struct accounts_live *l, struct loop *loop, struct store *store,
                        struct log *log, struct err *err) {
    l->loop = loop;
    l->store = store;
    l->log = log;
    l->source.fd = -1;
    l->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (l->notify < 0)
        return err_sys(err, "watching the accounts");
    l->accounts = accounts_new(err);
    if (l->accounts == NULL)
        return -1;
    accounts_tell_spent(l->accounts, accounts_live_spent, l);
    /* The watch comes first: what changes after the reading is then seen. */
    accounts_live_watch(l);
    if (l->watch_changed < 0)
        return err_sys(err, "watching " STATE_ACCOUNTS_CHANGED);
    if (accounts_live_read(l, err) < 0)
        return err_wrap(err, "reading users and tokens");
    if (accounts_token_next(l->accounts, NULL) == NULL)
        return err_set(err, ERR_STATE, ENOENT,
                       "there is no token at all; pinfold-server init makes one");
    accounts_live_purge(l);
    return loop_add(loop, &l->source, l->notify, EPOLLIN, accounts_live_event, l, err);
}

void accounts_live_stop(struct accounts_live *l) {
    if (l->loop == NULL)
        return;
    if (l->store != NULL)
        store_then_stop(l->store, &l->waiter);
    loop_del(l->loop, &l->source);
    loop_timer_stop(l->loop, &l->expiry);
    loop_timer_stop(l->loop, &l->purge);
    fd_close(&l->notify);
    if (l->accounts != NULL)
        accounts_tell_spent(l->accounts, NULL, NULL);
    accounts_free(l->accounts);
    memset(l, 0, sizeof(*l));
}

#include "accounts_live.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "id.h"
#include "state.h"
#include "str.h"

#define ACCOUNTS_LIVE_FILE_MAX ((size_t)1024 * 1024)
/* A timer must not be armed for centuries. */
#define ACCOUNTS_LIVE_LOOK_MS ((uint64_t)3600 * 1000)
#define ACCOUNTS_LIVE_EVENTS                                                                       \
    (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)

static int accounts_live_put(struct accounts *a, const struct token_record *record,
                             struct err *err) {
    struct accounts_user user = {.admin = record->admin, .weight = ACCOUNTS_WEIGHT_DEFAULT};
    struct accounts_token row = {.hash = record->hash,
                                 .scopes =
                                     record->admin ? ACCOUNTS_SCOPES_ALL : ACCOUNTS_SCOPES_USER,
                                 .expires_ms = ACCOUNTS_NEVER,
                                 .until_ms = ACCOUNTS_NEVER,
                                 .cpu_budget_ms = UINT64_MAX,
                                 .runs_budget = UINT64_MAX,
                                 .from_file = true};
    str_copy(user.name, sizeof(user.name), record->name);
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        user.quota.v[i] = row.quota.v[i] = QUOTA_UNLIMITED;
    if (accounts_put_user(a, &user, err) == NULL ||
        id_make(row.id, sizeof(row.id), "tok_", err) < 0)
        return -1;
    return accounts_put_token(a, &row, record->name, NULL, err) != NULL ? 0 : -1;
}

static int accounts_live_read_file(struct token_list *out, struct err *err) {
    struct buf text;
    buf_init(&text, ACCOUNTS_LIVE_FILE_MAX);
    int rc = fd_read_file(AT_FDCWD, STATE_TOKENS, &text, err);
    if (rc == 0)
        rc = token_list_parse(text.data != NULL ? text.data : "", text.len, out, err);
    buf_done(&text);
    return rc;
}

static void accounts_live_timer(void *arg);

/* Tells of tokens that are not valid any more, and waits for the next to expire. */
static void accounts_live_marked(struct accounts_live *l, size_t changed, uint64_t next_ms) {
    uint64_t now = clock_real_ms();
    uint64_t wait = next_ms <= now ? 0 : next_ms - now;
    if (changed > 0 && l->revoked != NULL)
        l->revoked(l->arg);
    if (next_ms == ACCOUNTS_NEVER) {
        loop_timer_stop(l->loop, &l->expiry);
        return;
    }
    if (wait > ACCOUNTS_LIVE_LOOK_MS)
        wait = ACCOUNTS_LIVE_LOOK_MS;
    loop_timer_at(l->loop, &l->expiry, clock_mono_ns() + wait * CLOCK_NS_PER_MS,
                  accounts_live_timer, l, NULL);
}

static void accounts_live_timer(void *arg) {
    struct accounts_live *l = arg;
    uint64_t next_ms;
    size_t changed = accounts_mark(l->accounts, clock_real_ms(), &next_ms);
    accounts_live_marked(l, changed, next_ms);
}

int accounts_live_read(struct accounts_live *l, struct err *err) {
    struct token_list list = {0};
    uint64_t next_ms;
    int rc = accounts_live_read_file(&list, err);
    accounts_begin(l->accounts);
    for (size_t i = 0; rc == 0 && i < list.count; i++)
        rc = accounts_live_put(l->accounts, &list.items[i], err);
    token_list_done(&list);
    size_t changed = accounts_end(l->accounts, clock_real_ms(), &next_ms);
    accounts_live_marked(l, changed, next_ms);
    return rc;
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

static void accounts_live_event(void *arg, uint32_t events) {
    struct accounts_live *l = arg;
    char space[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    struct err err;
    (void)events;
    while (read(l->notify, space, sizeof(space)) > 0) {
    }
    err_clear(&err);
    accounts_live_watch(l);
    if (accounts_live_read(l, &err) < 0)
        log_err(l->log, LOG_ERROR, "accounts_unreadable", &err);
}

int accounts_live_start(struct accounts_live *l, struct loop *loop, struct log *log,
                        struct err *err) {
    l->loop = loop;
    l->log = log;
    l->source.fd = -1;
    l->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (l->notify < 0)
        return err_sys(err, "watching the accounts");
    l->accounts = accounts_new(err);
    if (l->accounts == NULL)
        return -1;
    /* The watch comes first: what changes after the reading is then seen. */
    accounts_live_watch(l);
    if (l->watch_changed < 0)
        return err_sys(err, "watching " STATE_ACCOUNTS_CHANGED);
    if (accounts_live_read(l, err) < 0)
        return err_wrap(err, "reading " STATE_TOKENS " (pinfold-server init makes it)");
    return loop_add(loop, &l->source, l->notify, EPOLLIN, accounts_live_event, l, err);
}

void accounts_live_stop(struct accounts_live *l) {
    if (l->loop == NULL)
        return;
    loop_del(l->loop, &l->source);
    loop_timer_stop(l->loop, &l->expiry);
    fd_close(&l->notify);
    accounts_free(l->accounts);
    memset(l, 0, sizeof(*l));
}

#include "accounts_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accounts_import.h"
#include "audit_command.h"
#include "clock.h"
#include "fd.h"
#include "store_accounts.h"

static int accounts_tool_load(struct accounts_tool *t, struct err *err) {
    uint64_t next_ms;
    accounts_begin(t->accounts);
    struct store_accounts_seen seen = {0};
    if (store_accounts_load(t->store, t->accounts, &seen, err) < 0)
        return -1;
    accounts_end(t->accounts, clock_real_ms(), &next_ms);
    return 0;
}

int accounts_tool_open(struct accounts_tool *t, const char *path, struct err *err) {
    bool changed = false;
    *t = (struct accounts_tool){.state = STATE_NONE};
    if (state_open(path, &t->state, err) < 0)
        return -1;
    umask(077);
    t->accounts = accounts_new(err);
    if (t->accounts == NULL || store_open_tool(&t->state, &t->store, err) < 0 ||
        accounts_tool_load(t, err) < 0)
        return -1;
    /* Nobody has served from this directory yet, perhaps: then its tokens are only in the file. */
    if (accounts_import(t->state.dir, t->store, t->accounts, &changed, err) < 0)
        return -1;
    return changed ? accounts_tool_load(t, err) : 0;
}

/* A new time is enough to wake the server up, and works on a full disk. */
int accounts_tool_changed(const struct accounts_tool *t, const char *command, const char *subject,
                          struct err *err) {
    fd_cleanup int fd = openat(t->state.dir, STATE_ACCOUNTS_CHANGED,
                               O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || futimens(fd, NULL) < 0)
        return err_sys(err,
                       "the change is stored, but the server cannot be told through "
                       "%s/" STATE_ACCOUNTS_CHANGED,
                       t->state.path);
    fd_cleanup int dir = state_open_dir(&t->state, STATE_SERVER, err);
    if (dir < 0 || audit_command_record(dir, command, subject, err) < 0)
        return err_wrap(err, "the change is stored, but not in the audit log");
    return 0;
}

void accounts_tool_close(struct accounts_tool *t) {
    accounts_free(t->accounts);
    store_close(t->store);
    state_close(&t->state);
    *t = (struct accounts_tool){.state = STATE_NONE};
}

int accounts_tool_room(const struct accounts_tool *t, struct err *err) {
    return accounts_full(t->accounts)
               ? err_set(err, ERR_LIMIT, 0, "there are as many users and tokens as there may be")
               : 0;
}

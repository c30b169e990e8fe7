#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "opt.h"
#include "receipt_key.h"
#include "state.h"
#include "str.h"
#include "subcommand.h"
#include "token.h"

#define INIT_TOKENS_MAX (1024u * 1024)
#define INIT_ADMIN "admin"

struct init_options {
    const char *state;
    const char *user;
};

/* Reads a small regular file below `dirfd`. The server's own directory belongs to a user that may
 * have been taken over: no link is followed and no FIFO is waited for. 1 = read, 0 = none there. */
static int init_read(int dirfd, const char *name, struct buf *out, struct err *err) {
    fd_cleanup int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(err, "cannot open %s", name);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is not a regular file", name);
    for (;;) {
        char *room = buf_reserve(out, 4096, err);
        ssize_t got;

        if (room == NULL)
            return err_wrap(err, "%s", name);
        got = read(fd, room, 4096);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read %s", name);
        if (got == 0)
            break;
        out->len += (size_t)got;
    }
    return 1;
}

/* The administrator who ran this through sudo is the one who must be able to read the token. */
static uid_t init_token_owner(void) {
    const char *text = geteuid() == 0 ? getenv("SUDO_UID") : NULL;
    uint64_t uid;

    if (text != NULL && str_u64(text, 0, UINT32_MAX - 1, &uid, NULL) == 0)
        return (uid_t)uid;
    return geteuid();
}

/* Loads admin.token into `text`, or makes it. *made says which. */
static int init_admin_token(const struct state *s, char text[TOKEN_TEXT_LEN + 1], bool *made,
                            struct err *err) {
    struct buf file;
    char line[TOKEN_TEXT_LEN + 2];
    int got;

    buf_init(&file, 8192);
    got = init_read(s->dir, STATE_ADMIN_TOKEN, &file, err);
    if (got > 0) {
        if (file.len > 0 && file.data[file.len - 1] == '\n')
            file.len--;
        if (token_is_form(file.data != NULL ? file.data : "", file.len)) {
            memcpy(text, file.data, TOKEN_TEXT_LEN);
            text[TOKEN_TEXT_LEN] = '\0';
        } else {
            got = err_set(err, ERR_INVALID, 0,
                          "%s/%s holds no token; remove the file to get a new one", s->path,
                          STATE_ADMIN_TOKEN);
        }
        if (file.data != NULL)
            token_wipe(file.data, file.cap);
    }
    buf_done(&file);
    *made = got == 0;
    if (got != 0)
        return got < 0 ? -1 : 0;
    if (token_new(text, err) < 0)
        return -1;
    snprintf(line, sizeof(line), "%s\n", text);
    got = fd_write_atomic(s->dir, STATE_ADMIN_TOKEN, line, strlen(line), 0600, err);
    token_wipe(line, sizeof(line));
    if (got == 0 &&
        fchownat(s->dir, STATE_ADMIN_TOKEN, init_token_owner(), (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
        got = err_sys(err, "cannot give %s to its owner", STATE_ADMIN_TOKEN);
    return got;
}

/* The lines of all records but the administrator's, then the administrator's. */
static int init_format_tokens(const struct token_list *list, const struct token_record *admin,
                              struct buf *out, struct err *err) {
    char line[TOKEN_LINE_SIZE];

    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, admin->name) == 0)
            continue;
        if (token_record_format(&list->items[i], line, err) < 0 || buf_puts(out, line, err) < 0)
            return -1;
    }
    if (token_record_format(admin, line, err) < 0)
        return -1;
    return buf_puts(out, line, err);
}

/* A server that runs may have looked at the new list before it was allowed to read it. A new time
 * is all that is given to the file, whatever its owner has put there. */
static void init_tell_server(int dir) {
    fd_cleanup int fd =
        openat(dir, "accounts.changed", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        (void)futimens(fd, NULL);
}

/* Replaces server/tokens. It belongs to root, so that the server can read it and not write it. */
static int init_write_tokens(int dir, const struct buf *text, gid_t gid, struct err *err) {
    fd_cleanup int fd = -1;

    if (fd_write_atomic(dir, "tokens", text->data, text->len, 0640, err) < 0)
        return -1;
    fd = openat(dir, "tokens", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fchown(fd, geteuid(), gid) < 0 || fchmod(fd, 0640) < 0)
        return err_sys(err, "cannot set the owner and mode of %s", STATE_TOKENS);
    init_tell_server(dir);
    return 0;
}

/* Makes sure that server/tokens knows the administrator's token. */
static int init_register(const struct state *s, const char *text, gid_t gid, struct err *err) {
    fd_cleanup int dir = state_open_dir(s, STATE_SERVER, err);
    struct token_list list = {0};
    struct token_record admin = {.name = INIT_ADMIN, .admin = true};
    const struct token_record *known;
    struct buf old, new;
    int rc = -1;

    if (dir < 0)
        return -1;
    buf_init(&old, INIT_TOKENS_MAX);
    buf_init(&new, INIT_TOKENS_MAX + TOKEN_LINE_SIZE);
    if (init_read(dir, "tokens", &old, err) < 0)
        goto out;
    if (token_list_parse(old.data != NULL ? old.data : "", old.len, &list, err) < 0) {
        err_wrap(err, "%s/%s", s->path, STATE_TOKENS);
        goto out;
    }
    known = token_list_find(&list, text, strlen(text));
    token_hash(text, strlen(text), &admin.hash);
    if (known != NULL && known->admin)
        rc = 0;
    else if (init_format_tokens(&list, &admin, &new, err) == 0)
        rc = init_write_tokens(dir, &new, gid, err);
out:
    token_list_done(&list);
    buf_done(&old);
    buf_done(&new);
    return rc;
}

static int init_find_user(const char *name, struct state_user *out, struct err *err) {
    if (name == NULL && geteuid() != 0) {
        out->uid = geteuid();
        out->gid = getegid();
        return 0;
    }
    return state_user_find(name != NULL ? name : "pinfold", out, err);
}

static int init_receipt_key(const struct state *s, struct err *err) {
    struct receipt_key key;
    fd_cleanup int dir = state_open_dir(s, STATE_SERVER, err);
    if (dir < 0 || receipt_key_open(dir, &key, NULL, err) < 0)
        return -1;
    receipt_key_wipe(&key);
    return 0;
}

static int init_do(const struct init_options *o, struct err *err) {
    struct state s = STATE_NONE;
    struct state_user user;
    char text[TOKEN_TEXT_LEN + 1] = "";
    bool made = false, made_token = false;
    int rc;

    umask(077); /* whatever it was: modes that matter are set on purpose */
    if (init_find_user(o->user, &user, err) < 0 || state_make(o->state, &user, &s, &made, err) < 0)
        return -1;
    rc = init_admin_token(&s, text, &made_token, err);
    if (rc == 0)
        rc = init_register(&s, text, user.gid, err);
    token_wipe(text, sizeof(text));
    if (rc == 0)
        rc = init_receipt_key(&s, err);
    if (rc == 0)
        printf("%s %s\n",
               made ? "made the state directory" : "the state directory is ready:", s.path);
    if (rc == 0 && made_token)
        printf("made the administrator's token: %s/%s\n", s.path, STATE_ADMIN_TOKEN);
    state_close(&s);
    return rc;
}

static int init_run(int argc, char **argv) {
    struct init_options o = {.state = "/var/lib/pinfold"};
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &o.state, 0, 0, "the state directory (/var/lib/pinfold)"},
        {"user", 0, "NAME", OPT_STRING, &o.user, 0, 0,
         "the user that the server becomes (pinfold)"},
        {0},
    };
    struct opt_result result;
    struct err err = {0};

    if (opt_parse(table, argc, argv, &result, &err) < 0) {
        fprintf(stderr, "pinfold-server init: %s\n", err.text);
        return 2;
    }
    if (result.help) {
        opt_help(stdout, "pinfold-server init [--state DIR] [--user NAME]",
                 "Makes the state directory with everything in it, and the administrator's token.\n"
                 "Corrects owners and modes of what is there. Running it again is harmless.",
                 table);
        return 0;
    }
    if (result.rest < argc) {
        fprintf(stderr, "pinfold-server init: unexpected argument %s\n", argv[result.rest]);
        return 2;
    }
    if (init_do(&o, &err) < 0) {
        fprintf(stderr, "pinfold-server init: %s\n", err.text);
        return 1;
    }
    return 0;
}

const struct subcommand init_cmd = {
    .name = "init",
    .about = "make the state directory and the administrator's token",
    .run = init_run,
};

#include "perm_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "str.h"

#define PERM_FILES_SYSTEM "/etc/pinfold/permissions.rules"
#define PERM_FILES_TRUSTED_MAX ((size_t)1024 * 1024)
/* Links in one path, as the kernel has it. */
#define PERM_FILES_LINKS 40

static int perm_files_join(char *out, size_t size, const char *a, const char *b, struct err *err) {
    size_t n = strlen(a), m = strlen(b);

    if (n + m + 2 > size)
        return err_set(err, ERR_LIMIT, 0, "a path is too long: %.100s/%.100s", a, b);
    memmove(out, a, n);
    out[n] = '/';
    memcpy(out + n + 1, b, m + 1);
    return 0;
}

/* $name/pinfold, or HOME/fallback/pinfold. An XDG variable that is not absolute does not count. */
static int perm_files_xdg(char *out, const char *name, const char *home, const char *fallback,
                          struct err *err) {
    const char *base = getenv(name);
    char path[PATH_MAX];

    if (base != NULL && base[0] == '/')
        return perm_files_join(out, PATH_MAX, base, "pinfold", err);
    if (perm_files_join(path, sizeof(path), home, fallback, err) < 0)
        return -1;
    return perm_files_join(out, PATH_MAX, path, "pinfold", err);
}

static const char *perm_files_home(void) {
    const char *home = getenv("HOME");
    const struct passwd *pw;

    if (home != NULL && home[0] == '/')
        return home;
    pw = getpwuid(geteuid());
    return pw != NULL && pw->pw_dir[0] == '/' ? pw->pw_dir : "/";
}

int perm_files_find(struct perm_files *f, const char *workspace, struct err *err) {
    const char *home = perm_files_home();

    *f = (struct perm_files){0};
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "cannot start libsodium");
    if (realpath(workspace != NULL ? workspace : ".", f->workspace) == NULL)
        return err_sys(err, "cannot find the workspace %s", workspace != NULL ? workspace : ".");
    if (!str_copy(f->home, sizeof(f->home), home))
        return err_set(err, ERR_LIMIT, 0, "the path of the home directory is too long");
    if (perm_files_xdg(f->config, "XDG_CONFIG_HOME", home, ".config", err) < 0 ||
        perm_files_xdg(f->state, "XDG_STATE_HOME", home, ".local/state", err) < 0)
        return -1;
    return 0;
}

static void perm_files_hex(const void *data, size_t len, char out[PERM_FILES_HASH]) {
    unsigned char hash[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(hash, data, len);
    sodium_bin2hex(out, PERM_FILES_HASH, hash, sizeof(hash));
}

/* A file that somebody else can write says nothing about what its owner allows. */
static int perm_files_read(const char *path, bool owned, struct buf *text, bool *there,
                           struct err *err) {
    struct stat st;

    *there = false;
    if (lstat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return 0;
        return err_sys(err, "cannot look at %s", path);
    }
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s: is not a regular file", path);
    if (owned && ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 022) != 0))
        return err_set(err, ERR_INVALID, 0,
                       "%s: others may write this file; chmod go-w it, and chown it to yourself",
                       path);
    *there = true;
    return fd_read_file(AT_FDCWD, path, text, err);
}

static const char *perm_files_base(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static int perm_files_grants(const struct perm_files *f, char out[PATH_MAX], struct err *err) {
    char hash[PERM_FILES_HASH], name[64];

    perm_files_hex(f->workspace, strlen(f->workspace), hash);
    snprintf(name, sizeof(name), "grants/%.32s.rules", hash);
    return perm_files_join(out, PATH_MAX, f->config, name, err);
}

static int perm_files_workspace(const struct perm_files *f, char out[PATH_MAX], struct err *err) {
    return perm_files_join(out, PATH_MAX, f->workspace, ".pinfold/permissions.rules", err);
}

/* ---- trust ---- */

static int perm_files_trusted(const struct perm_files *f, struct buf *text, struct err *err) {
    char path[PATH_MAX];
    bool there;

    buf_init(text, PERM_FILES_TRUSTED_MAX);
    if (perm_files_join(path, sizeof(path), f->config, "trusted", err) < 0)
        return -1;
    return perm_files_read(path, true, text, &there, err);
}

/* Is the line "HASH PATH" there? *start and *end (may be NULL) are where. */
static bool perm_files_listed(const struct buf *text, const char *line, size_t *start,
                              size_t *end) {
    size_t len = strlen(line);

    for (size_t pos = 0; pos < text->len;) {
        const char *nl = memchr(text->data + pos, '\n', text->len - pos);
        size_t n = nl != NULL ? (size_t)(nl - text->data) - pos : text->len - pos;

        if (n == len && memcmp(text->data + pos, line, len) == 0) {
            if (start != NULL) {
                *start = pos;
                *end = pos + n + (nl != NULL);
            }
            return true;
        }
        pos += n + 1;
    }
    return false;
}

/* ---- loading ---- */

static struct perm_file *perm_files_add(struct perm_files *f, enum rule_layer layer,
                                        const char *what) {
    struct perm_file *file = &f->file[f->count++];

    *file = (struct perm_file){.layer = layer, .what = what, .trusted = true};
    return file;
}

static int perm_files_list(struct perm_files *f, const char *rules, const char *session,
                           struct err *err) {
    f->count = 0;
    if (!str_copy(perm_files_add(f, RULE_SYSTEM, "system")->path, PATH_MAX, PERM_FILES_SYSTEM))
        return -1;
    if (rules != NULL) {
        if (!str_copy(perm_files_add(f, RULE_USER, "user (--rules)")->path, PATH_MAX, rules))
            return err_set(err, ERR_LIMIT, 0, "the path of the rules is too long");
    } else {
        if (perm_files_join(perm_files_add(f, RULE_USER, "user")->path, PATH_MAX, f->config,
                            "permissions.rules", err) < 0 ||
            perm_files_grants(f, perm_files_add(f, RULE_USER, PERM_FILES_GRANTS)->path, err) < 0)
            return -1;
    }
    if (perm_files_workspace(f, perm_files_add(f, RULE_WORKSPACE, "workspace")->path, err) < 0)
        return -1;
    if (session != NULL &&
        !str_copy(perm_files_add(f, RULE_SESSION, "session")->path, PATH_MAX, session))
        return err_set(err, ERR_LIMIT, 0, "the path of the rules is too long");
    return 0;
}

static int perm_files_load_one(const struct perm_files *f, struct perm_file *file, bool must,
                               const struct buf *trusted, struct rule_set *set, struct err *err) {
    struct buf text;
    char line[PERM_FILES_HASH + PATH_MAX];
    size_t before = set->count;
    int rc;

    buf_init(&text, RULE_FILE_MAX);
    rc = perm_files_read(file->path, file->layer < RULE_WORKSPACE && !must, &text, &file->there,
                         err);
    if (rc == 0 && !file->there && must)
        rc = err_set(err, ERR_INVALID, 0, "%s: there is no such file", file->path);
    if (rc == 0 && file->there) {
        perm_files_hex(text.data != NULL ? text.data : "", text.len, file->hash);
        if (file->layer == RULE_WORKSPACE) {
            snprintf(line, sizeof(line), "%s %s", file->hash, f->workspace);
            file->trusted = perm_files_listed(trusted, line, NULL, NULL);
        }
        rc = rule_load(set, file->layer, file->trusted && file->layer != RULE_SESSION, file->path,
                       text.data != NULL ? text.data : "", text.len, err);
    }
    file->rules = set->count - before;
    buf_done(&text);
    return rc;
}

static int perm_files_load_all(struct perm_files *f, bool rules, bool session, struct rule_set *set,
                               struct err *err) {
    struct buf trusted;
    int rc = perm_files_trusted(f, &trusted, err);

    if (rc == 0)
        rc = rule_load_guard(set, f->config, f->state, err);
    for (size_t i = 0; rc == 0 && i < f->count; i++) {
        const struct perm_file *file = &f->file[i];
        bool must = (file->layer == RULE_USER && rules) || (file->layer == RULE_SESSION && session);

        rc = perm_files_load_one(f, &f->file[i], must, &trusted, set, err);
    }
    if (rc == 0)
        rc = rule_load_default(set, err);
    buf_done(&trusted);
    return rc;
}

int perm_files_load(struct perm_files *f, const char *rules, const char *session,
                    const struct perm_config *config, struct rule_set *set, struct perm *perm,
                    struct err *err) {
    *perm = (struct perm){0};
    if (rule_set_init(set, f->workspace, f->home, err) < 0)
        return -1;
    if (perm_files_list(f, rules, session, err) < 0 ||
        perm_files_load_all(f, rules != NULL, session != NULL, set, err) < 0 ||
        perm_init(perm, set, config, err) < 0 || perm_check_examples(perm, err) < 0) {
        perm_done(perm);
        rule_set_done(set);
        return -1;
    }
    sodium_bin2hex(f->policy, sizeof(f->policy), set->digest, sizeof(set->digest));
    return 0;
}

/* The workspace's own rules, for somebody who is to trust them. -1 when there are none. */
static int perm_files_workspace_text(const struct perm_files *f, struct buf *text,
                                     struct err *err) {
    char path[PATH_MAX];
    bool there;

    if (perm_files_workspace(f, path, err) < 0 ||
        perm_files_read(path, false, text, &there, err) < 0)
        return -1;
    return there ? 0 : err_set(err, ERR_INVALID, 0, "%s: there is no such file", path);
}

/* ---- writing ---- */

/* mkdir -p, for one's own eyes only. */
static int perm_files_mkdirs(const char *path, struct err *err) {
    char part[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        size_t n = slash != NULL ? (size_t)(slash - path) : strlen(path);

        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST)
            return err_sys(err, "cannot make the directory %s", part);
        if (slash == NULL)
            return 0;
    }
}

/* Changes a file of CONFIG whole or not at all, with no other process in between. */
static int perm_files_edit(const struct perm_files *f, const char *path,
                           int (*edit)(struct buf *text, const char *line, struct err *err),
                           const char *line, struct err *err) {
    char dir[PATH_MAX], lock[PATH_MAX];
    fd_cleanup int fd = -1;
    struct buf text;
    bool there;
    int rc;

    if (!str_copy(dir, sizeof(dir), path))
        return err_set(err, ERR_LIMIT, 0, "a path is too long");
    dir[perm_files_base(dir) - dir - 1] = '\0';
    if (perm_files_mkdirs(dir, err) < 0 ||
        perm_files_join(lock, sizeof(lock), f->config, ".lock", err) < 0)
        return -1;
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_sys(err, "cannot lock %s", lock);
    buf_init(&text, PERM_FILES_TRUSTED_MAX);
    rc = perm_files_read(path, true, &text, &there, err);
    if (rc == 0)
        rc = edit(&text, line, err);
    if (rc == 0)
        rc = fd_write_atomic(AT_FDCWD, path, text.data != NULL ? text.data : "", text.len, 0600,
                             err);
    buf_done(&text);
    return rc;
}

/* 1 = there is nothing to write. */
static int perm_files_line_add(struct buf *text, const char *line, struct err *err) {
    if (perm_files_listed(text, line, NULL, NULL))
        return 1;
    if (text->len > 0 && text->data[text->len - 1] != '\n' && buf_puts(text, "\n", err) < 0)
        return -1;
    return buf_printf(text, err, "%s\n", line);
}

static int perm_files_line_drop(struct buf *text, const char *line, struct err *err) {
    size_t start, end;

    (void)err;
    if (!perm_files_listed(text, line, &start, &end))
        return 1;
    memmove(text->data + start, text->data + end, text->len - end);
    text->len -= end - start;
    return 0;
}

int perm_files_trust(const struct perm_files *f, bool trust, struct err *err) {
    char path[PATH_MAX], line[PERM_FILES_HASH + PATH_MAX], hash[PERM_FILES_HASH];
    struct buf text;
    int rc;

    buf_init(&text, RULE_FILE_MAX);
    rc = perm_files_workspace_text(f, &text, err);
    if (rc == 0) {
        perm_files_hex(text.data != NULL ? text.data : "", text.len, hash);
        snprintf(line, sizeof(line), "%s %s", hash, f->workspace);
        rc = perm_files_join(path, sizeof(path), f->config, "trusted", err);
    }
    buf_done(&text);
    if (rc < 0)
        return -1;
    rc = perm_files_edit(f, path, trust ? perm_files_line_add : perm_files_line_drop, line, err);
    return rc < 0 ? -1 : 0;
}

int perm_files_allow(const struct perm_files *f, const char *rule, struct err *err) {
    char path[PATH_MAX];

    if (perm_files_grants(f, path, err) < 0)
        return -1;
    return perm_files_edit(f, path, perm_files_line_add, rule, err);
}

/* ---- links ---- */

/* One component of `rest` onto out; follows it when it is a link. `rest` is PATH_MAX bytes. */
static int perm_files_step(char *out, size_t size, char *rest, unsigned *links) {
    char target[PATH_MAX], more[PATH_MAX];
    size_t n = strcspn(rest, "/"), len = strlen(out);
    bool parent = n == 2 && rest[0] == '.' && rest[1] == '.';
    bool nothing = n == 0 || (n == 1 && rest[0] == '.');
    ssize_t got;

    if (!parent && !nothing && len + n + 2 > size)
        return -1;
    if (!parent && !nothing) {
        out[len] = '/';
        memcpy(out + len + 1, rest, n);
        out[len + 1 + n] = '\0';
    }
    n += rest[n] == '/';
    memmove(rest, rest + n, strlen(rest + n) + 1);
    if (parent) {
        while (len > 0 && out[len - 1] != '/')
            len--;
        out[len > 0 ? len - 1 : 0] = '\0';
    }
    if (parent || nothing)
        return 0;
    got = readlink(out, target, sizeof(target) - 1);
    /* EACCES: what is behind it, nobody here knows. */
    if (got < 0)
        return errno == EINVAL || errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    if (++*links > PERM_FILES_LINKS || (size_t)got + strlen(rest) + 2 > sizeof(more))
        return -1;
    target[got] = '\0';
    out[target[0] == '/' ? 0 : len] = '\0';
    got = snprintf(more, sizeof(more), "%s/%s", target, rest);
    if (got < 0 || (size_t)got >= sizeof(more))
        return -1;
    memcpy(rest, more, (size_t)got + 1);
    return 0;
}

int perm_files_resolve(void *arg, const char *path, char *out, size_t size) {
    const struct perm_files *f = arg;
    size_t base = f != NULL ? strlen(f->workspace) : 0;
    char rest[PATH_MAX];
    unsigned links = 0;

    if (size < PATH_MAX || strlen(path) >= sizeof(rest))
        return -1;
    out[0] = '\0';
    /* The way to the workspace has been resolved once. */
    if (base > 1 && strncmp(path, f->workspace, base) == 0 && path[base] == '/') {
        memcpy(out, f->workspace, base + 1);
        path += base;
    }
    memcpy(rest, path, strlen(path) + 1);
    while (rest[0] != '\0')
        if (perm_files_step(out, size, rest, &links) < 0)
            return -1;
    if (out[0] == '\0')
        memcpy(out, "/", 2);
    return 0;
}

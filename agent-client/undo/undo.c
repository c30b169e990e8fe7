#include "undo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "undo_internal.h"

#define UNDO_BYTES_MAX ((uint64_t)2 * 1024 * 1024 * 1024)
#define UNDO_AGE_MAX_MS ((uint64_t)30 * 24 * 3600 * 1000)

struct undo_record *undo_record_new(struct undo *u, const char *label, const char *by,
                                    const char *session, struct err *err) {
    struct undo_record *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        return NULL;
    }
    snprintf(r->id, sizeof(r->id), "ch_%010" PRIu64, u->next);
    r->label = strndup(label != NULL ? label : "", UNDO_LABEL_MAX);
    r->by = strdup(by != NULL ? by : "");
    r->session = strdup(session != NULL ? session : "");
    r->when_ms = clock_real_ms();
    if (r->label == NULL || r->by == NULL || r->session == NULL) {
        undo_record_free(r);
        err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        return NULL;
    }
    return r;
}

/* mkdir -p with mode 0700, and a descriptor of the last one. */
static int undo_dirs(const char *path, struct err *err) {
    char part[PATH_MAX];
    int fd;

    if (path[0] != '/' || strlen(path) >= sizeof(part))
        return err_set(err, ERR_INVALID, 0, "the journal %.200s is not an absolute path", path);
    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        size_t n = slash != NULL ? (size_t)(slash - path) : strlen(path);

        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST)
            return err_sys(err, "cannot make the directory %s", part);
        if (slash == NULL)
            break;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : err_sys(err, "cannot open the journal %s", path);
}

static int undo_where(const struct undo_options *o, char out[PATH_MAX], struct err *err) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;

    if (o->journal != NULL)
        n = snprintf(out, PATH_MAX, "%s", o->journal);
    else if (state != NULL && state[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/pinfold/undo", state);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.local/state/pinfold/undo", home);
    else
        return err_set(err, ERR_INVALID, 0, "no journal: neither HOME nor XDG_STATE_HOME is set");
    return n > 0 && n < PATH_MAX ? 0 : err_set(err, ERR_LIMIT, 0, "the journal's path is too long");
}

static int undo_subdir(int base, const char *name, struct err *err) {
    int fd;

    if (mkdirat(base, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make a directory in the journal");
    fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : err_sys(err, "cannot open a directory of the journal");
}

/* A journal in the workspace would be changed by what it is to take back. */
static int undo_apart(int base, int root, struct err *err) {
    char journal[PATH_MAX], workspace[PATH_MAX], link[40];
    ssize_t a, b;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", base);
    a = readlink(link, journal, sizeof(journal) - 1);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
    b = readlink(link, workspace, sizeof(workspace) - 1);
    if (a < 0 || b < 0)
        return err_sys(err, "cannot tell where the journal is");
    journal[a] = workspace[b] = '\0';
    if (strncmp(journal, workspace, (size_t)b) == 0 && (journal[b] == '/' || journal[b] == '\0'))
        return err_set(err, ERR_INVALID, 0, "the journal %.150s is inside the workspace", journal);
    return 0;
}

/* The next number, and what a process that died has left. */
static int undo_recover(struct undo *u, struct err *err) {
    struct dirent **names = NULL;
    int n = scandirat(u->entries, ".", &names, NULL, alphasort), rc = 0;

    if (n < 0)
        return err_sys(err, "cannot list the journal");
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        size_t len = strlen(name);

        if (strncmp(name, "ch_", 3) == 0) {
            uint64_t number = strtoull(name + 3, NULL, 10);

            u->next = number >= u->next ? number + 1 : u->next;
        }
        if (rc == 0 && len > 5 && strncmp(name, "ch_", 3) == 0 &&
            strcmp(name + len - 5, ".todo") == 0) {
            struct undo_record *r = undo_record_read(u, name, err);

            rc = r != NULL ? apply_rollback(u, r, err) : -1;
            undo_record_free(r);
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

static int undo_lock(int fd, const struct undo_options *o, struct err *err) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK && o->waits != NULL)
        o->waits();
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot lock the journal");
    return 0;
}

/* What a process that died has left is taken back first, when nobody is at work. */
static int undo_begin_reading(struct undo *u, struct err *err) {
    int rc;

    u->reads = true;
    if (flock(u->lock, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : err_sys(err, "cannot lock the journal");
    rc = undo_recover(u, err);
    (void)flock(u->lock, LOCK_UN);
    return rc;
}

static int undo_open_all(struct undo *u, const struct undo_options *o, struct err *err) {
    char path[PATH_MAX], full[PATH_MAX + 80], id[UNDO_HEX_SIZE];
    uint8_t hash[UNDO_HASH_SIZE];

    crypto_hash_sha256(hash, (const unsigned char *)o->path, strlen(o->path));
    sodium_bin2hex(id, sizeof(id), hash, sizeof(hash));
    if (undo_where(o, path, err) < 0)
        return -1;
    snprintf(full, sizeof(full), "%s/%s", path, id);
    u->root = fcntl(o->root, F_DUPFD_CLOEXEC, 3);
    u->base = undo_dirs(full, err);
    if (u->root < 0 || u->base < 0 || undo_apart(u->base, u->root, err) < 0)
        return -1;
    u->entries = undo_subdir(u->base, "entries", err);
    u->blobs = undo_subdir(u->base, "blobs", err);
    if (u->entries < 0 || u->blobs < 0)
        return -1;
    u->lock = openat(u->base, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (u->lock < 0)
        return err_sys(err, "cannot open the lock of the journal");
    if (o->reads)
        return undo_begin_reading(u, err);
    return undo_lock(u->lock, o, err) < 0 ? -1 : undo_recover(u, err);
}

struct undo *undo_open(const struct undo_options *options, struct err *err) {
    struct undo *u = calloc(1, sizeof(*u));

    if (u == NULL || sodium_init() < 0) {
        free(u);
        err_set(err, ERR_SYSTEM, 0, "cannot start the journal");
        return NULL;
    }
    *u = (struct undo){.root = -1, .base = -1, .entries = -1, .blobs = -1, .lock = -1, .next = 1};
    u->bytes_max = options->bytes_max != 0 ? options->bytes_max : UNDO_BYTES_MAX;
    u->age_max_ms = options->age_max_ms != 0 ? options->age_max_ms : UNDO_AGE_MAX_MS;
    if (undo_open_all(u, options, err) < 0) {
        undo_close(u);
        return NULL;
    }
    return u;
}

void undo_close(struct undo *u) {
    if (u == NULL)
        return;
    undo_batch_drop(u);
    fd_close(&u->root);
    fd_close(&u->entries);
    fd_close(&u->blobs);
    fd_close(&u->base);
    fd_close(&u->lock);
    free(u);
}

int undo_contents(struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], struct err *err) {
    uint64_t offset;
    /* In a pack there are other contents as well. */
    int fd = undo_pack_copy(u, sha256, err);

    return fd >= 0 ? fd : undo_blob_open(u, sha256, &offset, err);
}

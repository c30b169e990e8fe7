#include "cp_job.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bundle.h"
#include "fd.h"
#include "local_tree.h"
#include "say.h"
#include "str.h"

#define CP_UNPACK_CHUNK ((size_t)128 * 1024)

struct cp_unpack {
    struct cp_job *job;
    int top;   /* the directory that is filled */
    int spool; /* the archive, whole, before anything is touched */
    struct archive *tar;
};

static int cp_unpack_on_data(void *arg, const char *data, size_t len, struct err *err) {
    struct cp_unpack *u = arg;

    progress_add(&u->job->progress, len);
    return fd_write_all(u->spool, data, len, err);
}

/* In the directory itself: there is room for what comes, or there is not. */
static int cp_unpack_open_spool(struct cp_unpack *u, struct err *err) {
    char temp[LOCAL_TREE_TEMP_MAX];

    u->spool = openat(u->top, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (u->spool >= 0)
        return 0;
    /* A file system without O_TMPFILE. */
    if (local_tree_temp_name(temp, err) < 0)
        return -1;
    u->spool = openat(u->top, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (u->spool < 0)
        return err_sys(err, "cannot create a file in the directory");
    unlinkat(u->top, temp, 0);
    return 0;
}

static int cp_unpack_fetch(struct cp_unpack *u, const struct cp_path *remote, struct err *err) {
    char url[CP_URL_MAX];
    struct rest_call call = {.method = "GET", .path = url, .on_data = cp_unpack_on_data, .arg = u};

    if (cp_path_url(remote, "archive", "?format=tar", url, sizeof(url), err) < 0)
        return -1;
    progress_begin(&u->job->progress, 0);
    if (rest_perform(u->job->rest, &call, err) < 0)
        return -1;
    progress_end(&u->job->progress);
    if (call.status >= 400)
        return rest_refusal(&call, err);
    if (lseek(u->spool, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot read the archive");
    return 0;
}

/* The contents of the entry into a file that is put in place when it is complete. */
static int cp_unpack_file(struct cp_unpack *u, struct archive_entry *e, int dir, const char *name,
                          struct err *err) {
    char temp[LOCAL_TREE_TEMP_MAX], data[CP_UNPACK_CHUNK];
    fd_cleanup int fd = local_tree_temp(dir, temp, archive_entry_perm(e) & 0777, err);
    la_ssize_t got;

    if (fd < 0)
        return -1;
    while ((got = archive_read_data(u->tar, data, sizeof(data))) > 0)
        if (fd_write_all(fd, data, (size_t)got, err) < 0)
            goto undo;
    if (got < 0) {
        err_set(err, ERR_PROTOCOL, 0, "the archive is damaged: %s", archive_error_string(u->tar));
        goto undo;
    }
    return local_tree_place(dir, temp, name, err);
undo:
    unlinkat(dir, temp, 0);
    return -1;
}

static int cp_unpack_symlink(struct archive_entry *e, int dir, const char *name, struct err *err) {
    char temp[LOCAL_TREE_TEMP_MAX];

    if (local_tree_temp_name(temp, err) < 0)
        return -1;
    if (symlinkat(archive_entry_symlink(e), dir, temp) < 0)
        return err_sys(err, "cannot make the link");
    return local_tree_place(dir, temp, name, err);
}

/* Another name of a file of this archive. */
static int cp_unpack_hardlink(struct cp_unpack *u, const char *target, int dir, const char *name,
                              struct err *err) {
    char copy[BUNDLE_PATH_MAX + 1], temp[LOCAL_TREE_TEMP_MAX];
    const char *base = NULL;
    fd_cleanup int from = -1;
    struct stat st;

    while (target[0] == '.' && target[1] == '/')
        target += 2;
    if (local_tree_check(target, strlen(target), u->job->git, err) < 0)
        return -1;
    if (!str_copy(copy, sizeof(copy), target))
        return err_set(err, ERR_INVALID, 0, "its path is too long");
    from = local_tree_parent(u->top, copy, &base, err);
    if (from < 0)
        return -1;
    if (fstatat(from, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "it is a link to what is not a file here");
    if (local_tree_temp_name(temp, err) < 0)
        return -1;
    if (linkat(from, base, dir, temp, 0) < 0)
        return err_sys(err, "cannot make the link");
    if (local_tree_place(dir, temp, name, err) < 0)
        return -1;
    /* rename(2) leaves both names alone when they are one file already. */
    unlinkat(dir, temp, 0);
    return 0;
}

static int cp_unpack_directory(struct archive_entry *e, int dir, const char *name,
                               struct err *err) {
    int made = local_tree_enter(dir, name, (archive_entry_perm(e) & 0777) | S_IRWXU, err);

    if (made < 0)
        return -1;
    close(made);
    return 0;
}

/* Nothing of another kind is replaced. */
static int cp_unpack_free(int dir, const char *name, mode_t kind, struct err *err) {
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & S_IFMT) == kind)
        return 0;
    return err_set(err, ERR_INVALID, 0, "there is something of another kind here");
}

static int cp_unpack_place(struct cp_unpack *u, struct archive_entry *e, const char *path,
                           struct err *err) {
    char copy[BUNDLE_PATH_MAX + 1];
    const char *name = NULL, *hard = archive_entry_hardlink(e);
    mode_t kind = hard != NULL ? S_IFREG : archive_entry_filetype(e);
    const char *target = kind == S_IFLNK ? archive_entry_symlink(e) : NULL;
    fd_cleanup int dir = -1;

    if (local_tree_check(path, strlen(path), u->job->git, err) < 0)
        return -1;
    if (kind != S_IFREG && kind != S_IFDIR && kind != S_IFLNK)
        return err_set(err, ERR_INVALID, 0, "it is not a file, directory or link");
    if (kind == S_IFLNK && (target == NULL || !cp_path_link_stays(path, target)))
        return err_set(err, ERR_INVALID, 0, "it is a link that leads out of the directory");
    if (!str_copy(copy, sizeof(copy), path))
        return err_set(err, ERR_INVALID, 0, "its path is too long");
    dir = local_tree_parent(u->top, copy, &name, err);
    if (dir < 0 || (kind != S_IFDIR && cp_unpack_free(dir, name, kind, err) < 0))
        return -1;
    if (hard != NULL)
        return cp_unpack_hardlink(u, hard, dir, name, err);
    if (kind == S_IFDIR)
        return cp_unpack_directory(e, dir, name, err);
    if (kind == S_IFLNK)
        return cp_unpack_symlink(e, dir, name, err);
    return cp_unpack_file(u, e, dir, name, err);
}

static void cp_unpack_entry(struct cp_unpack *u, struct archive_entry *e) {
    const char *path = archive_entry_pathname(e);
    char copy[BUNDLE_PATH_MAX + 1];
    struct err err = {0};
    size_t len;

    while (path != NULL && path[0] == '.' && path[1] == '/')
        path += 2;
    if (path == NULL || !str_copy(copy, sizeof(copy), path)) {
        say_line("not copied: the archive has an entry without a name that fits");
        u->job->failed++;
        return;
    }
    len = strlen(copy);
    while (len > 0 && copy[len - 1] == '/')
        copy[--len] = '\0';
    if (len == 0 || strcmp(copy, ".") == 0)
        return;
    if (cp_unpack_place(u, e, copy, &err) < 0) {
        say_line("not copied: %s: %s", copy, err.text);
        u->job->failed++;
    }
}

static int cp_unpack_all(struct cp_unpack *u, struct err *err) {
    struct archive_entry *e;
    int rc = ARCHIVE_OK;

    u->tar = archive_read_new();
    if (u->tar == NULL || archive_read_support_format_tar(u->tar) != ARCHIVE_OK ||
        archive_read_open_fd(u->tar, u->spool, CP_UNPACK_CHUNK) != ARCHIVE_OK)
        return err_set(err, ERR_PROTOCOL, 0, "the archive cannot be read");
    while (u->job->signal == 0 && (rc = archive_read_next_header(u->tar, &e)) >= ARCHIVE_WARN) {
        if (rc == ARCHIVE_EOF)
            return 0;
        cp_unpack_entry(u, e);
        u->job->signal = intr_take(&u->job->intr);
    }
    if (u->job->signal != 0)
        return err_set(err, ERR_STATE, EINTR, "interrupted");
    return err_set(err, ERR_PROTOCOL, 0, "the archive is damaged: %s",
                   archive_error_string(u->tar));
}

int cp_unpack(struct cp_job *j, const struct cp_path *remote, const char *local, struct err *err) {
    struct cp_unpack u = {.job = j, .top = -1, .spool = -1};
    bool made = mkdir(local, 0777) == 0;
    int rc = -1;

    u.top = open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (u.top < 0)
        return err_sys(err, "cannot open the directory %s", local);
    if (cp_unpack_open_spool(&u, err) == 0 && cp_unpack_fetch(&u, remote, err) == 0) {
        made = false;
        rc = cp_unpack_all(&u, err);
    }
    if (made)
        rmdir(local);
    if (u.tar != NULL)
        archive_read_free(u.tar);
    fd_close(&u.spool);
    fd_close(&u.top);
    return rc;
}

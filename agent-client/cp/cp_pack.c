#include "cp_job.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "say.h"

#define CP_PACK_CHUNK ((size_t)128 * 1024)

/* A tar that is made as fast as the connection takes it. */
struct cp_pack {
    struct cp_job *job;
    const char *top; /* as the user named it */
    FTS *walk;
    struct archive *tar;
    struct buf out;
    size_t sent; /* of out */
    int fd;      /* the file whose contents are due; -1 = none */
    uint64_t left;
    char name[CP_PATH_MAX]; /* of that file */
    bool over;
};

static ssize_t cp_pack_take(struct archive *tar, void *arg, const void *data, size_t len) {
    struct cp_pack *p = arg;

    if (buf_append(&p->out, data, len, NULL) < 0) {
        archive_set_error(tar, ENOMEM, "no memory for the archive");
        return -1;
    }
    return (ssize_t)len;
}

static int cp_pack_tar_failed(const struct cp_pack *p, struct err *err) {
    const char *why = archive_error_string(p->tar);

    return err_set(err, ERR_SYSTEM, 0, "cannot make the archive: %s",
                   why != NULL ? why : "no memory");
}

/* The path below the top: what follows its name and the slashes behind that. */
static const char *cp_pack_name(const struct cp_pack *p, const FTSENT *e) {
    const char *name = e->fts_path + strlen(p->top);

    while (*name == '/')
        name++;
    return *name == '\0' ? "." : name;
}

static int cp_pack_header(struct cp_pack *p, const FTSENT *e, const char *link, struct err *err) {
    struct archive_entry *entry = archive_entry_new();
    const struct stat *st = e->fts_statp;
    int rc;

    if (entry == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the archive");
    archive_entry_set_pathname(entry, cp_pack_name(p, e));
    archive_entry_set_filetype(entry, st->st_mode & S_IFMT);
    archive_entry_set_perm(entry, st->st_mode & 0777);
    archive_entry_set_mtime(entry, st->st_mtim.tv_sec, 0);
    archive_entry_set_size(entry, S_ISREG(st->st_mode) ? st->st_size : 0);
    if (link != NULL)
        archive_entry_set_symlink(entry, link);
    rc = archive_write_header(p->tar, entry);
    archive_entry_free(entry);
    return rc < ARCHIVE_WARN ? cp_pack_tar_failed(p, err) : 0;
}

static int cp_pack_file(struct cp_pack *p, FTSENT *e, struct err *err) {
    fd_cleanup int fd =
        open(e->fts_accpath, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, e->fts_statp) < 0) {
        say_line("not copied: %s: %s", e->fts_path, strerror(errno));
        p->job->failed++;
        return 0;
    }
    if (!S_ISREG(e->fts_statp->st_mode))
        return err_set(err, ERR_STATE, 0, "%s changed while it was read", e->fts_path);
    snprintf(p->name, sizeof(p->name), "%s", e->fts_path);
    p->left = (uint64_t)e->fts_statp->st_size;
    if (cp_pack_header(p, e, NULL, err) < 0)
        return -1;
    if (p->left > 0)
        p->fd = fd_steal(&fd);
    return 0;
}

static int cp_pack_link(struct cp_pack *p, FTSENT *e, struct err *err) {
    char target[CP_PATH_MAX];
    ssize_t len = readlink(e->fts_accpath, target, sizeof(target) - 1);

    if (len < 0) {
        say_line("not copied: %s: %s", e->fts_path, strerror(errno));
        p->job->failed++;
        return 0;
    }
    target[len] = '\0';
    return cp_pack_header(p, e, target, err);
}

static int cp_pack_entry(struct cp_pack *p, FTSENT *e, struct err *err) {
    switch (e->fts_info) {
    case FTS_D:
        return cp_pack_header(p, e, NULL, err);
    case FTS_DP:
        return 0;
    case FTS_F:
        return cp_pack_file(p, e, err);
    case FTS_SL:
    case FTS_SLNONE:
        return cp_pack_link(p, e, err);
    case FTS_DNR:
    case FTS_NS:
    case FTS_ERR:
        say_line("not copied: %s: %s", e->fts_path, strerror(e->fts_errno));
        p->job->failed++;
        return 0;
    default:
        say_line("not copied: %s is not a file, directory or link", e->fts_path);
        return 0;
    }
}

/* A piece of the file that is due. */
static int cp_pack_contents(struct cp_pack *p, struct err *err) {
    char data[CP_PACK_CHUNK];
    size_t want = p->left < sizeof(data) ? (size_t)p->left : sizeof(data);
    ssize_t got;

    do
        got = read(p->fd, data, want);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_sys(err, "cannot read %s", p->name);
    if (got == 0)
        return err_set(err, ERR_STATE, 0, "%s became shorter while it was read", p->name);
    if (archive_write_data(p->tar, data, (size_t)got) != got)
        return cp_pack_tar_failed(p, err);
    p->left -= (uint64_t)got;
    if (p->left == 0)
        fd_close(&p->fd);
    return 0;
}

/* Makes a little more of the tar. */
static int cp_pack_step(struct cp_pack *p, struct err *err) {
    FTSENT *e;

    if (p->fd >= 0)
        return cp_pack_contents(p, err);
    errno = 0;
    e = fts_read(p->walk);
    if (e != NULL)
        return cp_pack_entry(p, e, err);
    if (errno != 0)
        return err_sys(err, "cannot read %s", p->top);
    p->over = true;
    return archive_write_close(p->tar) < ARCHIVE_WARN ? cp_pack_tar_failed(p, err) : 0;
}

static ssize_t cp_pack_read(void *arg, char *data, size_t size, struct err *err) {
    struct cp_pack *p = arg;
    size_t left;

    if (p->sent == p->out.len) {
        buf_clear(&p->out);
        p->sent = 0;
    }
    while (p->out.len < size && !p->over)
        if (cp_pack_step(p, err) < 0)
            return -1;
    left = p->out.len - p->sent;
    if (left > size)
        left = size;
    memcpy(data, p->out.data + p->sent, left);
    p->sent += left;
    progress_add(&p->job->progress, left);
    return (ssize_t)left;
}

static int cp_pack_begin(struct cp_pack *p, struct err *err) {
    char *const tops[] = {(char *)(uintptr_t)p->top, NULL};

    buf_init(&p->out, (size_t)8 * 1024 * 1024);
    p->walk = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (p->walk == NULL)
        return err_sys(err, "cannot read %s", p->top);
    p->tar = archive_write_new();
    /* Names are bytes in it, not characters of some locale. */
    if (p->tar == NULL || archive_write_set_format_gnutar(p->tar) != ARCHIVE_OK ||
        archive_write_add_filter_none(p->tar) != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(p->tar, 0) != ARCHIVE_OK ||
        archive_write_open(p->tar, p, NULL, cp_pack_take, NULL) != ARCHIVE_OK)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the archive");
    return 0;
}

static void cp_pack_end(struct cp_pack *p) {
    fd_close(&p->fd);
    if (p->tar != NULL)
        archive_write_free(p->tar);
    if (p->walk != NULL)
        fts_close(p->walk);
    buf_done(&p->out);
}

int cp_pack(struct cp_job *j, const char *local, const struct cp_path *remote, struct err *err) {
    struct cp_pack p = {.job = j, .top = local, .fd = -1};
    char url[CP_URL_MAX];
    struct rest_call call = {.method = "PUT",
                             .path = url,
                             .on_read = cp_pack_read,
                             .read_len = -1,
                             .raw = true,
                             .arg = &p};
    int rc = cp_path_url(remote, "archive", "?format=tar", url, sizeof(url), err);

    if (rc == 0)
        rc = cp_pack_begin(&p, err);
    if (rc == 0) {
        progress_begin(&j->progress, 0);
        rc = rest_perform(j->rest, &call, err);
    }
    if (rc == 0 && call.status >= 400)
        rc = rest_refusal(&call, err);
    cp_pack_end(&p);
    return rc;
}

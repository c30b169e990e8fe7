#include "image_prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "image_tree.h"

#define IMAGE_PREPARE_FILE_MAX ((size_t)4 * 1024 * 1024)
#define IMAGE_PREPARE_UID "1000"

/* Parents come before what is in them. */
static const struct image_prepare_dir {
    const char *path;
    mode_t mode;
} image_prepare_dirs[] = {
    {"dev", 0755},  {"proc", 0555},      {"tmp", 01777}, {"var", 0755},       {"var/tmp", 01777},
    {"home", 0755}, {"home/user", 0755}, {"etc", 0755},  {"workspace", 0755}, {"usr", 0755},
};

static int image_prepare_wrong_type(const char *path, mode_t mode, struct err *err) {
    return err_set(err, ERR_INVALID, 0, "mount target %s is %s", path,
                   S_ISLNK(mode) ? "a symbolic link" : "not a directory");
}

static int image_prepare_dir(int root, const struct image_prepare_dir *want, struct err *err) {
    const char *slash = strrchr(want->path, '/');
    const char *name = slash != NULL ? slash + 1 : want->path;
    char above[64];
    fd_cleanup int parent = -1;
    struct stat st;

    snprintf(above, sizeof(above), "%.*s", slash != NULL ? (int)(slash - want->path) : 0,
             want->path);
    parent = image_tree_open_dir(root, above, err);
    if (parent < 0)
        return err_wrap(err, "mount target %s", want->path);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode) ? 0 : image_prepare_wrong_type(want->path, st.st_mode, err);
    /* The mode is set afterwards because the umask takes its part of mkdir's. */
    if (errno != ENOENT || mkdirat(parent, name, 0700) < 0 ||
        fchmodat(parent, name, want->mode, 0) < 0)
        return err_sys(err, "cannot make the mount target %s", want->path);
    return 0;
}

/* Files of /etc. */

/* Writes etc/NAME in place of whatever file or link is there. */
static int image_prepare_write(int etc, const char *name, const char *text, size_t len,
                               struct err *err) {
    struct stat st;

    if (fstatat(etc, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "etc/%s is a directory", name);
    /* By rename, which replaces a link instead of following it. */
    if (fd_write_atomic(etc, name, text, len, 0644, err) < 0)
        return err_wrap(err, "etc");
    return 0;
}

/* The contents of etc/NAME; empty when it is missing, or a link. */
static int image_prepare_read(int etc, const char *name, struct buf *out, struct err *err) {
    struct stat st;

    if (fstatat(etc, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
        return 0;
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "etc/%s is not a file", name);
    if (fd_read_file(etc, name, out, err) < 0)
        return err_wrap(err, "etc");
    return 0;
}

/* Does a line of passwd or group have `value` as field number `field` (from 0)? */
static bool image_prepare_has(const struct buf *text, int field, const char *value) {
    size_t want = strlen(value);
    const char *p = text->data, *end = p != NULL ? p + text->len : NULL;

    while (p != NULL && p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        const char *at = p;

        if (line_end == NULL)
            line_end = end;
        for (int i = 0; i < field && at != NULL; i++) {
            at = memchr(at, ':', (size_t)(line_end - at));
            at = at != NULL ? at + 1 : NULL;
        }
        if (at != NULL && (size_t)(line_end - at) >= want && memcmp(at, value, want) == 0 &&
            (at + want == line_end || at[want] == ':'))
            return true;
        p = line_end + 1;
    }
    return false;
}

/* passwd and group: what the image has, and an entry for the jail's user when its number is free.
 */
static int image_prepare_accounts(int etc, const char *file, const char *root_line,
                                  const char *user_rest, struct err *err) {
    struct buf text;
    int rc;

    buf_init(&text, IMAGE_PREPARE_FILE_MAX);
    rc = image_prepare_read(etc, file, &text, err);
    if (rc == 0 && text.len > 0 && text.data[text.len - 1] != '\n')
        rc = buf_puts(&text, "\n", err);
    if (rc == 0 && !image_prepare_has(&text, 2, "0"))
        rc = buf_puts(&text, root_line, err);
    if (rc == 0 && !image_prepare_has(&text, 2, IMAGE_PREPARE_UID))
        rc = buf_printf(&text, err, "%s:x:" IMAGE_PREPARE_UID ":%s\n",
                        image_prepare_has(&text, 0, "user") ? "pinfold" : "user", user_rest);
    if (rc == 0)
        rc = image_prepare_write(etc, file, text.data, text.len, err);
    buf_done(&text);
    return rc;
}

static int image_prepare_etc(int etc, struct err *err) {
    static const struct {
        const char *name;
        const char *text;
        bool keep; /* the image's own stays when it is a file */
    } files[] = {
        {"hosts", "127.0.0.1 localhost pinfold\n::1 localhost ip6-localhost pinfold\n", false},
        {"resolv.conf", "# A jail has no name server.\n", false},
        {"hostname", "pinfold\n", false},
        {"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n", true},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct stat st;

        if (files[i].keep && fstatat(etc, files[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            continue;
        if (image_prepare_write(etc, files[i].name, files[i].text, strlen(files[i].text), err) < 0)
            return -1;
    }
    if (image_prepare_accounts(etc, "passwd", "root:x:0:0:root:/root:/bin/sh\n",
                               "1000::/home/user:/bin/sh", err) < 0)
        return -1;
    return image_prepare_accounts(etc, "group", "root:x:0:\n", "", err);
}

int image_prepare(int root, struct err *err) {
    fd_cleanup int etc = -1;

    for (size_t i = 0; i < sizeof(image_prepare_dirs) / sizeof(image_prepare_dirs[0]); i++)
        if (image_prepare_dir(root, &image_prepare_dirs[i], err) < 0)
            return -1;
    etc = image_tree_open_dir(root, "etc", err);
    if (etc < 0)
        return -1;
    return image_prepare_etc(etc, err);
}

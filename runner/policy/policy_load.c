/* Policy files from a directory. Whoever can write them decides what every jail may do, so owner
 * and mode are checked on the descriptors that are then read, and no link is followed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "policy.h"

static void *policy_load_alloc(size_t size) {
    static const char text[] = "out of memory while JSON was read\n";
    void *p = malloc(size);
    if (p == NULL) {
        ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
        _exit(n < 0 ? 2 : 1);
    }
    return p;
}

void policy_load_guard(void) {
    json_set_alloc_funcs(policy_load_alloc, free);
}

static const char policy_suffix[] = ".json";

static int policy_open(int dirfd, const char *name, int flags) {
    int fd;
    do
        fd = openat(dirfd, name, flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Only root, or whoever runs us, may be able to change what is behind `fd`. */
static int policy_check_owner(int fd, mode_t type, const char *name, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(err, "cannot look at %s", name);
    if ((st.st_mode & S_IFMT) != type)
        return err_set(err, ERR_INVALID, 0, "%s is not a %s", name,
                       type == S_IFDIR ? "directory" : "regular file");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(err, ERR_INVALID, 0,
                       "%s belongs to user %u, who could widen it; it must belong to root", name,
                       (unsigned)st.st_uid);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, ERR_INVALID, 0,
                       "%s can be written by group or others; remove that (chmod go-w)", name);
    return 0;
}

static int policy_read_bytes(int fd, const char *file, struct buf *text, struct err *err) {
    for (;;) {
        size_t room = text->max - text->len;
        char *dst = buf_reserve(text, room < 16384 ? room : 16384, err);
        if (!dst)
            return -1;
        ssize_t n = read(fd, dst, room < 16384 ? room : 16384);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read %s", file);
        text->len += (size_t)n;
        if (n == 0)
            return 0;
    }
}

static int policy_load_file(int dirfd, const char *file, struct policy *out, struct err *err) {
    char name[WIRE_NAME_MAX];
    struct buf text;
    size_t len = strlen(file) - (sizeof(policy_suffix) - 1);
    if (len >= sizeof(name))
        return err_set(err, ERR_INVALID, 0, "%s: the name is too long", file);
    memcpy(name, file, len);
    name[len] = '\0';
    /* O_NONBLOCK: opening a FIFO must not hang before it can be refused. */
    fd_cleanup int fd = policy_open(dirfd, file, O_NONBLOCK);
    if (fd < 0)
        return err_sys(err, "cannot open %s", file);
    if (policy_check_owner(fd, S_IFREG, file, err) != 0)
        return -1;
    /* One byte more than is allowed, so that policy_parse() sees that it is too long. */
    buf_init(&text, WIRE_POLICY_TEXT_MAX + 1);
    int rc = policy_read_bytes(fd, file, &text, err);
    if (rc == 0 && policy_parse(name, text.data, text.len, out, err) != 0)
        rc = err_wrap(err, "%s", file);
    buf_done(&text);
    return rc;
}

/* Files of editors and packages (hidden, or with another suffix) are not policies. */
static bool policy_is_file_name(const char *name) {
    size_t len = strlen(name), suffix = sizeof(policy_suffix) - 1;
    return name[0] != '.' && len > suffix && strcmp(name + len - suffix, policy_suffix) == 0;
}

static int policy_set_add(struct policy_set *set, int dirfd, const char *file, struct err *err) {
    if (set->count == POLICY_SET_MAX)
        return err_set(err, ERR_LIMIT, 0, "more than %d policies", POLICY_SET_MAX);
    if (!set->items) {
        set->items = calloc(POLICY_SET_MAX, sizeof(*set->items));
        if (!set->items) {
            errno = ENOMEM;
            return err_sys(err, "cannot keep the policies");
        }
    }
    if (policy_load_file(dirfd, file, &set->items[set->count], err) != 0)
        return -1;
    set->count++;
    return 0;
}

static int policy_set_read(struct policy_set *set, DIR *stream, struct err *err) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry)
            return errno == 0 ? 0 : err_sys(err, "cannot list it");
        if (policy_is_file_name(entry->d_name) &&
            policy_set_add(set, dirfd(stream), entry->d_name, err) != 0)
            return -1;
    }
}

static int policy_order(const void *a, const void *b) {
    return strcmp(((const struct policy *)a)->name, ((const struct policy *)b)->name);
}

int policy_set_load(const char *dir, struct policy_set *out, struct err *err) {
    struct policy_set set = {0};
    fd_cleanup int fd = policy_open(AT_FDCWD, dir, O_DIRECTORY);
    if (fd < 0)
        return err_sys(err, "cannot open the policy directory %s, which --policies names", dir);
    if (policy_check_owner(fd, S_IFDIR, dir, err) != 0)
        return -1;
    DIR *stream = fdopendir(fd);
    if (!stream)
        return err_sys(err, "cannot list the policy directory %s", dir);
    (void)fd_steal(&fd); /* the stream's now */
    int rc = policy_set_read(&set, stream, err);
    (void)closedir(stream);
    if (rc == 0) {
        if (set.count > 0)
            qsort(set.items, set.count, sizeof(*set.items), policy_order);
        if (!policy_find(&set, "default"))
            rc = err_set(err, ERR_INVALID, 0, "there is no default.json");
    }
    if (rc != 0) {
        policy_set_done(&set);
        return err_wrap(err, "policies in %s", dir);
    }
    *out = set;
    return 0;
}

void policy_set_done(struct policy_set *set) {
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++)
        policy_done(&set->items[i]);
    free(set->items);
    memset(set, 0, sizeof(*set));
}

const struct policy *policy_find(const struct policy_set *set, const char *name) {
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->items[i].name, name) == 0)
            return &set->items[i];
    return NULL;
}

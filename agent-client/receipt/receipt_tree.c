#include "receipt_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "fd.h"
#include "local_tree.h"
#include "receipt.h"
#include "receipt_match.h"

#define RECEIPT_TREE_DEPTH 64
#define RECEIPT_TREE_FILES 65536u

/* SHA-256 of a regular file below `dir`; no link is followed at its end. */
static int receipt_tree_hash(int dir, const char *path, struct receipt_file *f) {
    struct stat st;
    fd_cleanup int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    if (digest_file(fd, 0, UINT64_MAX, -1, f->sha256, &f->size, NULL) < 0)
        return -1;
    f->mode = st.st_mode & 0777u;
    return 0;
}

static void receipt_tree_listed(struct receipt_match *m, int dir, const json_t *list) {
    size_t i;
    json_t *one;

    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        const char *wanted = json_string_value(json_object_get(one, "sha256"));
        struct receipt_file f = {0};
        char hex[65];
        if (path == NULL || wanted == NULL || local_tree_check(path, strlen(path), true, NULL) < 0)
            receipt_match_say(m, "files in: the receipt names a file that cannot be looked at");
        else if (receipt_tree_hash(dir, path, &f) < 0)
            receipt_match_say(m, "file %.300s: %s", path, strerror(errno));
        else if (receipt_hex(f.sha256, sizeof(f.sha256), hex), strcmp(hex, wanted) != 0)
            receipt_match_say(m, "file %.300s: it is not the one that went in", path);
    }
}

/* All files below a directory. */
struct receipt_tree {
    struct receipt_file *files;
    size_t count;
};

static int receipt_tree_add(struct receipt_tree *t, int dir, const char *name, const char *path) {
    if (t->count == RECEIPT_TREE_FILES)
        return -1;
    struct receipt_file *f = &t->files[t->count];
    memset(f, 0, sizeof(*f));
    if (receipt_tree_hash(dir, name, f) < 0)
        return -1;
    f->path = strdup(path);
    f->path_len = strlen(path);
    if (f->path == NULL)
        return -1;
    t->count++;
    return 0;
}

static int receipt_tree_walk(struct receipt_tree *t, int dir, const char *prefix, int depth) {
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *e;

    if (d == NULL || depth == 0) {
        if (d != NULL)
            closedir(d);
        else
            fd_close(&copy);
        return -1;
    }
    while (rc == 0 && (e = readdir(d)) != NULL) {
        char path[4096];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int n =
            snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", e->d_name);
        if (n < 0 || (size_t)n >= sizeof(path) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = -1;
        } else if (S_ISDIR(st.st_mode)) {
            fd_cleanup int sub =
                openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            rc = sub < 0 ? -1 : receipt_tree_walk(t, sub, path, depth - 1);
        } else if (S_ISREG(st.st_mode)) {
            rc = receipt_tree_add(t, dir, e->d_name, path);
        }
    }
    closedir(d);
    return rc;
}

static void receipt_tree_whole(struct receipt_match *m, int dir, const json_t *files_in) {
    struct receipt_tree t = {.files = calloc(RECEIPT_TREE_FILES, sizeof(*t.files))};
    const char *wanted = json_string_value(json_object_get(files_in, "sha256"));
    uint8_t root[32];
    char hex[65];

    if (t.files == NULL || receipt_tree_walk(&t, dir, "", RECEIPT_TREE_DEPTH) < 0) {
        receipt_match_say(m, "files in: the directory cannot be read");
    } else {
        receipt_files_sort(t.files, t.count);
        receipt_files_root(t.files, t.count, root);
        receipt_hex(root, sizeof(root), hex);
        if (wanted == NULL || strcmp(hex, wanted) != 0)
            receipt_match_say(m, "files in: the directory does not hold exactly what went in (the "
                                 "receipt has no list, so names, modes and contents must all fit)");
    }
    for (size_t i = 0; i < t.count; i++)
        free((char *)(uintptr_t)t.files[i].path);
    free(t.files);
}

void receipt_tree_check(struct receipt_match *m, const char *dir, const json_t *body) {
    const json_t *files_in = json_object_get(body, "files_in");
    const json_t *list = json_object_get(files_in, "list");
    fd_cleanup int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        receipt_match_say(m, "%.300s: %s", dir, strerror(errno));
    else if (files_in == NULL)
        receipt_match_say(m, "files in: the receipt names none");
    else if (json_integer_value(json_object_get(files_in, "others")) != 0)
        receipt_match_say(m,
                          "files in: %" JSON_INTEGER_FORMAT
                          " other commands or writes may have changed them before it was over",
                          json_integer_value(json_object_get(files_in, "others")));
    else if (json_is_array(list) || json_integer_value(json_object_get(files_in, "count")) == 0)
        receipt_tree_listed(m, fd, list);
    else
        receipt_tree_whole(m, fd, files_in);
}

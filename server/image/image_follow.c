#include "image_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "image_tree.h"

#define IMAGE_FOLLOW_MAX 40u /* as the kernel has it */
#define IMAGE_FOLLOW_SIZE 4096u

struct image_follow {
    int root;
    struct image_paths *paths;
    unsigned links;
    char out[IMAGE_FOLLOW_SIZE];  /* without links */
    char rest[IMAGE_FOLLOW_SIZE]; /* still to go */
};

static int image_follow_long(struct err *err) {
    return err_set(err, ERR_INVALID, 0, "its path is too long");
}

static int image_follow_up(struct image_follow *f, struct err *err) {
    char *slash = strrchr(f->out, '/');

    if (f->out[0] == '\0')
        return err_set(err, ERR_INVALID, 0, "its path leads out of the image by a symbolic link");
    *(slash != NULL ? slash : f->out) = '\0';
    return 0;
}

/* What the link `name` of the directory holds goes before the rest. */
static int image_follow_link(struct image_follow *f, int dir, const char *name, struct err *err) {
    char text[IMAGE_FOLLOW_SIZE], rest[IMAGE_FOLLOW_SIZE], path[IMAGE_FOLLOW_SIZE];
    ssize_t len = readlinkat(dir, name, text, sizeof(text) - 1);

    if (len < 0)
        return err_sys(err, "cannot read a symbolic link on the way");
    text[len] = '\0';
    if (++f->links > IMAGE_FOLLOW_MAX)
        return err_set(err, ERR_INVALID, ELOOP, "its path leads through too many symbolic links");
    if (snprintf(path, sizeof(path), "%s%s%s", f->out, f->out[0] != '\0' ? "/" : "", name) >=
            (int)sizeof(path) ||
        snprintf(rest, sizeof(rest), "%s/%s", text, f->rest) >= (int)sizeof(rest))
        return image_follow_long(err);
    if (image_paths_is_entry(f->paths, path))
        return err_set(err, ERR_INVALID, 0, "its path leads through a symbolic link of the layer");
    if (text[0] == '/')
        f->out[0] = '\0';
    memcpy(f->rest, rest, strlen(rest) + 1);
    return 0;
}

static int image_follow_name(struct image_follow *f, const char *name, struct err *err) {
    size_t used = strlen(f->out), len = strlen(name);
    fd_cleanup int dir = image_tree_open_dir(f->root, f->out, NULL);
    struct stat st;

    if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        return image_follow_link(f, dir, name, err);
    if (used + 1 + len >= sizeof(f->out))
        return image_follow_long(err);
    if (used > 0)
        f->out[used++] = '/';
    memcpy(f->out + used, name, len + 1);
    return 0;
}

/* Takes the next name off the rest. -> false when there is none */
static bool image_follow_next(struct image_follow *f, char name[IMAGE_FOLLOW_SIZE]) {
    size_t skip = strspn(f->rest, "/"), len = strcspn(f->rest + skip, "/");

    memcpy(name, f->rest + skip, len);
    name[len] = '\0';
    memmove(f->rest, f->rest + skip + len, strlen(f->rest + skip + len) + 1);
    return len > 0;
}

static int image_follow_all(struct image_follow *f, struct err *err) {
    char name[IMAGE_FOLLOW_SIZE];

    while (image_follow_next(f, name)) {
        int rc = 0;

        if (strcmp(name, "..") == 0)
            rc = image_follow_up(f, err);
        else if (strcmp(name, ".") != 0)
            rc = image_follow_name(f, name, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int image_follow(int root, struct image_paths *paths, char path[4096], struct err *err) {
    struct image_follow f = {.root = root, .paths = paths};
    char *slash = strrchr(path, '/');
    char whole[IMAGE_FOLLOW_SIZE];
    fd_cleanup int above = -1;
    struct err why = {0};

    if (slash == NULL)
        return 0;
    (void)snprintf(f.rest, sizeof(f.rest), "%.*s", (int)(slash - path), path);
    above = image_tree_open_dir(root, f.rest, &why);
    if (above >= 0 || why.code != ELOOP)
        return 0; /* no link on the way */
    if (image_follow_all(&f, err) < 0)
        return -1;
    if (snprintf(whole, sizeof(whole), "%s%s%s", f.out, f.out[0] != '\0' ? "/" : "", slash + 1) >=
        (int)sizeof(whole))
        return image_follow_long(err);
    return image_tree_normalise(whole, strlen(whole), path, err) < 0 ? -1 : 0;
}

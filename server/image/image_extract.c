#include "image_extract.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "image_follow.h"
#include "image_paths.h"
#include "image_record.h"
#include "image_tree.h"
#include "str.h"

struct image_extract {
    int in;
    struct image_tree tree;
    const struct image_bounds *bounds;
    const struct image_extract_layer *layer; /* NULL = a whole root file system */
    bool whiteouts;                          /* there are only these */
    struct image_count *count;
    uint64_t entries, layer_bytes;
    /* Read ahead: many records are a few dozen bytes. */
    size_t pos, len;
    char ahead[IMAGE_CHUNK_MAX];
    /* The current entry. */
    struct image_record rec;
    char raw_path[IMAGE_PATH_MAX + 1], raw_link[IMAGE_PATH_MAX + 1];
    char path[4096], link[4096];
    char chunk[IMAGE_CHUNK_MAX];
};

static int image_extract_broken(struct err *err) {
    return err_set(err, ERR_PROTOCOL, 0, "the reader of the archive broke off");
}

static int image_extract_read(struct image_extract *x, void *to, size_t len, struct err *err) {
    char *p = to;

    while (len > 0) {
        size_t part = x->len - x->pos < len ? x->len - x->pos : len;
        ssize_t got;

        memcpy(p, x->ahead + x->pos, part);
        x->pos += part;
        p += part;
        len -= part;
        if (len == 0)
            break;
        do
            got = read(x->in, x->ahead, sizeof(x->ahead));
        while (got < 0 && errno == EINTR);
        if (got <= 0)
            return image_extract_broken(err);
        x->pos = 0;
        x->len = (size_t)got;
    }
    return 0;
}

/* Puts the entry's name before the reason. */
static int image_extract_refuse(struct image_extract *x, struct err *err) {
    char name[160];

    str_escape(name, sizeof(name), x->raw_path, x->rec.path_len);
    return err_wrap(err, "the entry %s is refused", name);
}

static int image_extract_head(struct image_extract *x, struct err *err) {
    struct image_record *r = &x->rec;

    if (image_extract_read(x, r, sizeof(*r), err) < 0)
        return -1;
    if (r->magic != IMAGE_RECORD_MAGIC || r->type < IMAGE_RECORD_DIR ||
        r->type > IMAGE_RECORD_END || r->path_len > IMAGE_PATH_MAX ||
        r->link_len > IMAGE_PATH_MAX || r->reserved != 0)
        return image_extract_broken(err);
    if (image_extract_read(x, x->raw_path, r->path_len, err) < 0 ||
        image_extract_read(x, x->raw_link, r->link_len, err) < 0)
        return -1;
    x->raw_path[r->path_len] = '\0';
    x->raw_link[r->link_len] = '\0';
    return 0;
}

/* The contents of the open file. */
static int image_extract_data(struct image_extract *x, int fd, struct err *err) {
    for (;;) {
        struct image_chunk chunk;
        size_t done = 0;

        if (image_extract_read(x, &chunk, sizeof(chunk), err) < 0)
            return -1;
        if (chunk.size == 0)
            return 0;
        if (chunk.size == IMAGE_CHUNK_BROKEN)
            return 1;
        if (chunk.size > IMAGE_CHUNK_MAX || chunk.offset > x->rec.size ||
            chunk.size > x->rec.size - chunk.offset)
            return err_set(err, ERR_INVALID, 0, "it has more bytes than it announced");
        if (image_extract_read(x, x->chunk, chunk.size, err) < 0)
            return -1;
        while (done < chunk.size) {
            ssize_t put =
                pwrite(fd, x->chunk + done, chunk.size - done, (off_t)(chunk.offset + done));

            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0)
                return err_sys(err, "cannot write the file");
            done += (size_t)put;
        }
    }
}

/* 0 = written, 1 = the reader gave up within it: an ERROR record follows. */
static int image_extract_file(struct image_extract *x, struct err *err) {
    fd_cleanup int fd = -1;
    int rc;

    if (x->rec.size > x->bounds->max_bytes - x->count->bytes)
        return err_set(err, ERR_INVALID, 0, "all files together have more than %llu bytes",
                       (unsigned long long)x->bounds->max_bytes);
    if (x->layer != NULL && x->rec.size > x->layer->max_bytes - x->layer_bytes)
        return err_set(err, ERR_INVALID, 0,
                       "the layer unpacks to more than a layer of its size may have: %llu bytes",
                       (unsigned long long)x->layer->max_bytes);
    x->count->bytes += x->rec.size;
    x->layer_bytes += x->rec.size;
    fd = image_tree_file(&x->tree, x->path, err);
    if (fd < 0)
        return -1;
    rc = image_extract_data(x, fd, err);
    if (rc != 0)
        return rc;
    return image_tree_file_end(fd, x->rec.size, x->rec.mode, x->rec.mtime, err);
}

static int image_extract_symlink(struct image_extract *x, struct err *err) {
    if (x->rec.link_len == 0 || strlen(x->raw_link) != x->rec.link_len)
        return err_set(err, ERR_INVALID, 0, "the text of the symbolic link is empty or has a NUL");
    return image_tree_symlink(&x->tree, x->path, x->raw_link, err);
}

static int image_extract_hardlink(struct image_extract *x, struct err *err) {
    int rc = image_tree_normalise(x->raw_link, x->rec.link_len, x->link, err);

    if (rc <= 0)
        return rc < 0 ? err_wrap(err, "the target of the link")
                      : err_set(err, ERR_INVALID, 0, "the target of the link is a directory");
    if (x->layer != NULL && image_follow(x->tree.root, x->layer->paths, x->link, err) < 0)
        return err_wrap(err, "the target of the link");
    /* What it names is not there any more: the link has taken its place. */
    if (x->layer != NULL && strcmp(x->path, x->link) == 0)
        return err_set(err, ERR_INVALID, 0, "it is a link to itself");
    return image_tree_hardlink(&x->tree, x->path, x->link, err);
}

/* The jail's own /dev hides what is there, so device files that usual root file systems bring along
 * for it do no harm when they are left out. */
static bool image_extract_is_hidden(const char *path) {
    return strncmp(path, "dev/", 4) == 0;
}

/* Is a part of the path the name of a whiteout? */
static bool image_extract_has_whiteout(const char *path) {
    for (const char *p = path; p != NULL; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0)
            return true;
    }
    return false;
}

/* An entry of a layer: finds out where it goes, and makes room for it. */
static int image_extract_settle(struct image_extract *x, struct err *err) {
    bool dir = x->rec.type == IMAGE_RECORD_DIR;
    enum image_paths_kind kind = dir ? IMAGE_PATHS_DIR : IMAGE_PATHS_OTHER;
    char asked[sizeof(x->path)];

    if (image_extract_has_whiteout(x->path))
        return err_set(err, ERR_INVALID, 0, "its path has a name that begins with .wh.");
    if (image_paths_enter(x->layer->paths, x->path, kind, err) < 0)
        return -1;
    memcpy(asked, x->path, sizeof(asked));
    if (image_follow(x->tree.root, x->layer->paths, x->path, err) < 0)
        return -1;
    /* It may be there by its other name. */
    if (strcmp(asked, x->path) != 0 && image_paths_enter(x->layer->paths, x->path, kind, err) < 0)
        return -1;
    return image_tree_displace(&x->tree, x->path, dir, err);
}

/* 0 = done, 1 = see image_extract_file(). */
static int image_extract_entry(struct image_extract *x, struct err *err) {
    uint32_t type = x->rec.type;
    int rc = image_tree_normalise(x->raw_path, x->rec.path_len, x->path, err);

    if (rc < 0)
        return -1;
    if (rc == 0)
        return type == IMAGE_RECORD_DIR
                   ? 0
                   : err_set(err, ERR_INVALID, 0, "the root must be a directory");
    if (type == IMAGE_RECORD_SOCKET ||
        ((type == IMAGE_RECORD_DEVICE || type == IMAGE_RECORD_FIFO) &&
         image_extract_is_hidden(x->path))) {
        x->count->left_out++;
        return 0;
    }
    x->count->files++;
    if (x->layer != NULL && image_extract_settle(x, err) < 0)
        return -1;
    switch (type) {
    case IMAGE_RECORD_DIR:
        return image_tree_dir(&x->tree, x->path, x->rec.mode, err);
    case IMAGE_RECORD_FILE:
        return image_extract_file(x, err);
    case IMAGE_RECORD_SYMLINK:
        return image_extract_symlink(x, err);
    case IMAGE_RECORD_HARDLINK:
        return image_extract_hardlink(x, err);
    case IMAGE_RECORD_DEVICE:
        return err_set(err, ERR_INVALID, 0, "it is a device");
    case IMAGE_RECORD_FIFO:
        return err_set(err, ERR_INVALID, 0, "it is a FIFO");
    default:
        return err_set(err, ERR_INVALID, 0, "it is neither file, directory nor link");
    }
}

/* A mark takes away its sibling, or all that is beside it. */
static int image_extract_whiteout(struct image_extract *x, struct err *err) {
    int rc = image_tree_normalise(x->raw_path, x->rec.path_len, x->path, err);
    char *slash = strrchr(x->path, '/'), *name = slash != NULL ? slash + 1 : x->path;

    if (rc <= 0)
        return rc < 0 ? -1 : err_set(err, ERR_INVALID, 0, "it is no whiteout");
    if (x->rec.type != IMAGE_RECORD_WHITEOUT ||
        strncmp(name, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) != 0)
        return err_set(err, ERR_INVALID, 0, "it is no whiteout");
    if (strcmp(name, IMAGE_WHITEOUT_OPAQUE) == 0) {
        *(slash != NULL ? slash : x->path) = '\0';
        return image_extract_has_whiteout(x->path)
                   ? err_set(err, ERR_INVALID, 0, "it is a whiteout in a whiteout")
                   : image_tree_clear_dir(&x->tree, x->path, err);
    }
    if (strncmp(name, IMAGE_WHITEOUT_META, strlen(IMAGE_WHITEOUT_META)) == 0)
        return 0;
    memmove(name, name + strlen(IMAGE_WHITEOUT), strlen(name) + 1 - strlen(IMAGE_WHITEOUT));
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(err, ERR_INVALID, 0, "it is a whiteout of nothing, or of what is above it");
    if (image_extract_has_whiteout(x->path))
        return err_set(err, ERR_INVALID, 0, "it is a whiteout in a whiteout");
    return image_tree_take_away(&x->tree, x->path, err);
}

static int image_extract_all(struct image_extract *x, struct err *err) {
    bool broken = false;

    for (;;) {
        int rc;

        if (image_extract_head(x, err) < 0)
            return -1;
        if (x->rec.type == IMAGE_RECORD_ERROR) {
            char text[300];

            str_escape(text, sizeof(text), x->raw_path, x->rec.path_len);
            return err_set(err, ERR_INVALID, 0, "%s", text);
        }
        if (broken)
            return image_extract_broken(err);
        if (x->rec.type == IMAGE_RECORD_END)
            return 0;
        if (++x->entries > x->bounds->max_files)
            return err_set(err, ERR_INVALID, 0, "the archive has more than %llu entries",
                           (unsigned long long)x->bounds->max_files);
        rc = x->whiteouts ? image_extract_whiteout(x, err) : image_extract_entry(x, err);
        if (rc < 0)
            return err == NULL || err->kind == ERR_PROTOCOL ? -1 : image_extract_refuse(x, err);
        broken = rc > 0;
    }
}

static struct image_extract *image_extract_new(int in, int root, const struct image_bounds *bounds,
                                               struct err *err) {
    struct image_extract *x = calloc(1, sizeof(*x));

    if (x == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory to unpack the archive");
        return NULL;
    }
    x->in = in;
    x->bounds = bounds;
    image_tree_init(&x->tree, root);
    return x;
}

static void image_extract_free(struct image_extract *x) {
    image_tree_done(&x->tree);
    free(x);
}

int image_extract(int in, int root, const struct image_bounds *bounds, struct image_count *count,
                  struct err *err) {
    struct image_extract *x = image_extract_new(in, root, bounds, err);
    int rc;

    if (x == NULL)
        return -1;
    *count = (struct image_count){0};
    x->count = count;
    rc = image_extract_all(x, err);
    if (rc == 0 && count->files == 0)
        rc = err_set(err, ERR_INVALID, 0, "the archive holds no files");
    image_extract_free(x);
    return rc;
}

int image_extract_layer(int in, int root, const struct image_bounds *bounds,
                        const struct image_extract_layer *layer, struct image_count *count,
                        struct err *err) {
    struct image_extract *x = image_extract_new(in, root, bounds, err);
    int rc;

    if (x == NULL)
        return -1;
    x->count = count;
    x->layer = layer;
    x->entries = count->files + count->left_out;
    rc = image_extract_all(x, err);
    image_extract_free(x);
    return rc;
}

int image_extract_whiteouts(int in, int root, const struct image_bounds *bounds, struct err *err) {
    struct image_extract *x = image_extract_new(in, root, bounds, err);
    int rc;

    if (x == NULL)
        return -1;
    x->whiteouts = true;
    rc = image_extract_all(x, err);
    image_extract_free(x);
    return rc;
}

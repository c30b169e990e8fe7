#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "image_tree.h"
#include "json_memory.h"
#include "str.h"

#define IMAGE_MANIFEST_MAX 65536u

int image_check_name(const char *name, struct err *err) {
    if (!str_is_name(name))
        return err_set(err, ERR_INVALID, 0,
                       "the name of an image is up to 63 letters, digits, _ . -");
    if (strcmp(name, IMAGE_HOST) == 0)
        return err_set(err, ERR_INVALID, 0, "the name host is taken: it means this machine's /usr");
    return 0;
}

char *image_manifest(const struct image *image) {
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", image->name, "sha256", image->sha256,
                  "files", (json_int_t)image->files, "bytes", (json_int_t)image->bytes,
                  "imported_at", (json_int_t)image->imported_at);
    char *text = object != NULL ? json_memory_dump(object, JSON_INDENT(2)) : NULL;
    size_t len = text != NULL ? strlen(text) : 0;
    char *longer = text != NULL ? realloc(text, len + 2) : NULL;

    json_decref(object);
    if (longer == NULL) {
        free(text);
        return NULL;
    }
    memcpy(longer + len, "\n", 2);
    return longer;
}

static bool image_take_u64(const json_t *object, const char *key, uint64_t *out) {
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool image_take(const json_t *object, const char *name, struct image *out) {
    const char *sha256 = json_string_value(json_object_get(object, "sha256"));
    const char *own = json_string_value(json_object_get(object, "name"));

    return own != NULL && strcmp(own, name) == 0 && sha256 != NULL &&
           strlen(sha256) == IMAGE_SHA256_SIZE - 1 &&
           str_copy(out->name, sizeof(out->name), name) &&
           str_copy(out->sha256, sizeof(out->sha256), sha256) &&
           image_take_u64(object, "files", &out->files) &&
           image_take_u64(object, "bytes", &out->bytes) &&
           image_take_u64(object, "imported_at", &out->imported_at);
}

int image_read(int images, const char *name, struct image *out, struct err *err) {
    fd_cleanup int dir = -1;
    struct image image = {0};
    struct buf text;
    json_t *object = NULL;
    bool ok;

    if (image_check_name(name, err) < 0)
        return -1;
    dir = image_tree_open_dir(images, name, NULL);
    if (dir < 0)
        return err_set(err, ERR_INVALID, ENOENT, "there is no image %s", name);
    buf_init(&text, IMAGE_MANIFEST_MAX);
    if (fd_read_file(dir, "manifest.json", &text, err) < 0) {
        buf_done(&text);
        return err_wrap(err, "image %s", name);
    }
    object = json_memory_load(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES,
                              NULL);
    ok = image_take(object, name, &image);
    json_decref(object);
    buf_done(&text);
    if (!ok)
        return err_set(err, ERR_INVALID, 0, "the manifest of image %s is damaged", name);
    *out = image;
    return 0;
}

static int image_compare(const void *a, const void *b) {
    return strcmp(((const struct image *)a)->name, ((const struct image *)b)->name);
}

/* Opens a second descriptor for a listing, so that the caller's position stays. */
static DIR *image_opendir(int images, struct err *err) {
    int copy = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);

    if (list == NULL) {
        err_sys(err, "cannot list the images");
        fd_close(&copy);
    }
    return list;
}

int image_list_read(int images, struct image_list *out, size_t *broken, struct err *err) {
    DIR *dir = image_opendir(images, err);
    struct image_list list = {0};
    struct dirent *entry;
    size_t bad = 0;

    if (dir == NULL)
        return -1;
    list.items = calloc(IMAGE_LIST_MAX, sizeof(*list.items));
    if (list.items == NULL) {
        closedir(dir);
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the list of images");
    }
    while ((entry = readdir(dir)) != NULL && list.count < IMAGE_LIST_MAX) {
        if (entry->d_name[0] == '.')
            continue;
        if (image_read(images, entry->d_name, &list.items[list.count], NULL) == 0)
            list.count++;
        else
            bad++;
    }
    closedir(dir);
    qsort(list.items, list.count, sizeof(*list.items), image_compare);
    if (broken != NULL)
        *broken = bad;
    *out = list;
    return 0;
}

void image_list_done(struct image_list *list) {
    if (list == NULL)
        return;
    free(list->items);
    *list = (struct image_list){0};
}

int image_remove(int images, const char *name, struct err *err) {
    unsigned long long salt;
    char hidden[48];

    if (image_check_name(name, err) < 0)
        return -1;
    if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
        return err_sys(err, "cannot get random bytes");
    snprintf(hidden, sizeof(hidden), ".remove-%016llx", salt);
    if (renameat(images, name, images, hidden) < 0) {
        if (errno == ENOENT)
            return err_set(err, ERR_INVALID, ENOENT, "there is no image %s", name);
        return err_sys(err, "cannot remove the image %s", name);
    }
    return image_tree_remove(images, hidden, err);
}

int image_sweep(int images, struct err *err) {
    DIR *dir = image_opendir(images, err);
    struct dirent *entry;
    int rc = 0;

    if (dir == NULL)
        return -1;
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, ".remove-", 8) == 0 ||
            strncmp(entry->d_name, ".import-", 8) == 0)
            rc = image_tree_remove(images, entry->d_name, err);
    closedir(dir);
    return rc;
}

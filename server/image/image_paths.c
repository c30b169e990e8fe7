#include "image_paths.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_PATHS_FIRST 1024u
#define IMAGE_PATHS_MAX ((size_t)1 << 26)

void image_paths_done(struct image_paths *p) {
    if (p == NULL)
        return;
    free(p->slots);
    *p = (struct image_paths){0};
}

static struct image_paths_slot *image_paths_find(struct image_paths_slot *slots, size_t size,
                                                 const uint64_t hash[2]) {
    size_t at = (size_t)hash[0] & (size - 1);

    while (slots[at].kind != IMAGE_PATHS_NONE &&
           (slots[at].hash[0] != hash[0] || slots[at].hash[1] != hash[1]))
        at = (at + 1) & (size - 1);
    return &slots[at];
}

static int image_paths_grow(struct image_paths *p, struct err *err) {
    size_t size = p->size > 0 ? p->size * 2 : IMAGE_PATHS_FIRST;
    struct image_paths_slot *slots;

    if (p->count * 2 < p->size)
        return 0;
    if (p->size == 0)
        randombytes_buf(p->key, sizeof(p->key));
    slots = size <= IMAGE_PATHS_MAX ? calloc(size, sizeof(*slots)) : NULL;
    if (slots == NULL)
        return err_set(err, ERR_LIMIT, ENOMEM, "the layer has too many paths to keep in mind");
    for (size_t i = 0; i < p->size; i++)
        if (p->slots[i].kind != IMAGE_PATHS_NONE)
            *image_paths_find(slots, size, p->slots[i].hash) = p->slots[i];
    free(p->slots);
    p->slots = slots;
    p->size = size;
    return 0;
}

static struct image_paths_slot *image_paths_slot_of(struct image_paths *p, const char *path,
                                                    size_t len, uint64_t hash[2]) {
    (void)crypto_shorthash_siphashx24((unsigned char *)hash, (const unsigned char *)path, len,
                                      p->key);
    return image_paths_find(p->slots, p->size, hash);
}

static int image_paths_put(struct image_paths *p, const char *path, size_t len,
                           enum image_paths_kind kind, struct err *err) {
    uint64_t hash[2];
    struct image_paths_slot *slot;

    if (image_paths_grow(p, err) < 0)
        return -1;
    slot = image_paths_slot_of(p, path, len, hash);
    if (slot->kind == IMAGE_PATHS_NONE) {
        slot->hash[0] = hash[0];
        slot->hash[1] = hash[1];
        p->count++;
    }
    slot->kind = kind;
    return 0;
}

static enum image_paths_kind image_paths_kind_of(struct image_paths *p, const char *path,
                                                 size_t len) {
    uint64_t hash[2];

    return p->size == 0 ? IMAGE_PATHS_NONE
                        : (enum image_paths_kind)image_paths_slot_of(p, path, len, hash)->kind;
}

int image_paths_enter(struct image_paths *p, const char *path, enum image_paths_kind kind,
                      struct err *err) {
    size_t len = strlen(path);
    enum image_paths_kind old = image_paths_kind_of(p, path, len);

    if (old != IMAGE_PATHS_NONE && (kind == IMAGE_PATHS_OTHER || old == IMAGE_PATHS_OTHER))
        return err_set(err, ERR_INVALID, 0, "the layer has this path twice");
    if (image_paths_put(p, path, len, kind, err) < 0)
        return -1;
    for (size_t i = len; i-- > 0;) {
        if (path[i] != '/')
            continue;
        old = image_paths_kind_of(p, path, i);
        if (old == IMAGE_PATHS_OTHER)
            return err_set(err, ERR_INVALID, 0, "its path leads through a file of the layer");
        if (old != IMAGE_PATHS_NONE)
            break; /* what is above it is known, too */
        if (image_paths_put(p, path, i, IMAGE_PATHS_ABOVE, err) < 0)
            return -1;
    }
    return 0;
}

bool image_paths_is_entry(struct image_paths *p, const char *path) {
    enum image_paths_kind kind = image_paths_kind_of(p, path, strlen(path));

    return kind == IMAGE_PATHS_DIR || kind == IMAGE_PATHS_OTHER;
}

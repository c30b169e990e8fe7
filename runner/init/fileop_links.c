#include "fileop_links.h"

#include <stdlib.h>
#include <string.h>

#define FILEOP_LINKS_SLOTS (2u * FILEOP_LINKS_MAX)

struct fileop_links_entry {
    dev_t dev;
    ino_t ino;
    size_t at; /* of the path, counted from 1; 0 = free */
};

static size_t fileop_links_slot(const struct fileop_links *l, const struct stat *st) {
    uint64_t hash = ((uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 40) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash >> 40) % FILEOP_LINKS_SLOTS;
    while (l->table[i].at != 0 &&
           (l->table[i].ino != st->st_ino || l->table[i].dev != st->st_dev)) {
        i = (i + 1) % FILEOP_LINKS_SLOTS;
    }
    return i;
}

static int fileop_links_keep(struct fileop_links *l, const char *path, size_t len) {
    if (l->text_len + len + 1 > l->text_room) {
        size_t room = l->text_room ? l->text_room * 2 : 65536;
        char *text = room <= FILEOP_LINKS_TEXT ? realloc(l->text, room) : NULL;
        if (text == NULL) {
            return -1;
        }
        l->text = text;
        l->text_room = room;
    }
    memcpy(l->text + l->text_len, path, len);
    l->text[l->text_len + len] = '\0';
    l->text_len += len + 1;
    return 0;
}

const char *fileop_links_find(struct fileop_links *l, const struct stat *st, const char *path,
                              size_t len) {
    if (st->st_nlink < 2) {
        return NULL;
    }
    if (l->table == NULL) {
        l->table = calloc(FILEOP_LINKS_SLOTS, sizeof *l->table);
        if (l->table == NULL) {
            return NULL;
        }
    }
    struct fileop_links_entry *e = &l->table[fileop_links_slot(l, st)];
    if (e->at != 0) {
        return l->text + e->at - 1;
    }
    size_t at = l->text_len + 1;
    if (l->count < FILEOP_LINKS_MAX && fileop_links_keep(l, path, len) == 0) {
        *e = (struct fileop_links_entry){.dev = st->st_dev, .ino = st->st_ino, .at = at};
        l->count++;
    }
    return NULL;
}

void fileop_links_done(struct fileop_links *l) {
    free(l->table);
    free(l->text);
    *l = (struct fileop_links){0};
}

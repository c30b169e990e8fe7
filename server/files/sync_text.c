#include "sync_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_TEXT_BLOCK ((size_t)64 * 1024)

struct sync_text_block {
    struct sync_text_block *next;
    char bytes[];
};

void sync_text_init(struct sync_text *t, size_t max) {
    *t = (struct sync_text){.max = max};
}

void sync_text_done(struct sync_text *t) {
    if (t == NULL)
        return;
    while (t->blocks != NULL) {
        struct sync_text_block *next = t->blocks->next;
        free(t->blocks);
        t->blocks = next;
    }
    t->used = t->room = t->total = 0;
}

const char *sync_text_add(struct sync_text *t, const char *text, size_t len, struct err *err) {
    if (len == 0)
        return "";
    if (len >= t->max || t->total > t->max - len - 1) {
        err_set(err, ERR_LIMIT, 0, "the paths of a tree have more than %zu bytes together", t->max);
        return NULL;
    }
    if (len + 1 > t->room - t->used) {
        size_t size = len + 1 > SYNC_TEXT_BLOCK ? len + 1 : SYNC_TEXT_BLOCK;
        struct sync_text_block *block = malloc(sizeof(*block) + size);
        if (block == NULL) {
            err_set(err, ERR_SYSTEM, ENOMEM, "keeping a path: out of memory");
            return NULL;
        }
        block->next = t->blocks;
        t->blocks = block;
        t->used = 0;
        t->room = size;
    }
    char *to = t->blocks->bytes + t->used;
    memcpy(to, text, len);
    to[len] = '\0';
    t->used += len + 1;
    t->total += len + 1;
    return to;
}

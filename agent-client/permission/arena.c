#include "arena.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK ((size_t)16 * 1024)
#define ARENA_ALIGN 16u

struct arena_block {
    struct arena_block *next;
    size_t size;
    _Alignas(ARENA_ALIGN) char data[];
};

void arena_init(struct arena *a, size_t max) {
    *a = (struct arena){.max = max};
}

void arena_done(struct arena *a) {
    struct arena_block *b = a != NULL ? a->first : NULL;

    while (b != NULL) {
        struct arena_block *next = b->next;

        free(b);
        b = next;
    }
    if (a != NULL)
        *a = (struct arena){.max = a->max};
}

void arena_reset(struct arena *a) {
    a->now = a->first;
    a->used = 0;
    a->total = 0;
    a->failed = false;
}

/* Makes `now` a block with room for `size` bytes: one that is there already, or a new one. */
static int arena_advance(struct arena *a, size_t size) {
    struct arena_block **link = a->now != NULL ? &a->now->next : &a->first;
    struct arena_block *b = *link;

    if (b == NULL || b->size < size) {
        size_t want = size > ARENA_BLOCK ? size : ARENA_BLOCK;

        b = malloc(sizeof(*b) + want);
        if (b == NULL)
            return -1;
        b->size = want;
        b->next = *link;
        *link = b;
    }
    a->now = b;
    a->used = 0;
    return 0;
}

void *arena_get(struct arena *a, size_t size) {
    size_t want = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    void *p;

    a->failed = a->failed || want < size || want > a->max || a->total > a->max - want ||
                ((a->now == NULL || a->now->size - a->used < want) && arena_advance(a, want) < 0);
    if (a->failed)
        return NULL;
    p = a->now->data + a->used;
    a->used += want;
    a->total += want;
    return memset(p, 0, want);
}

char *arena_copy(struct arena *a, const char *text, size_t len) {
    char *p = arena_get(a, len + 1);

    if (p != NULL && len > 0)
        memcpy(p, text, len);
    return p;
}

#include "json_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* A string is copied once, and the buffer for it doubles: all copies together have less than four
 * times its length. */
#define JSON_MEMORY_FACTOR 5u
#define JSON_MEMORY_LEAST 4096u
#define JSON_MEMORY_ALIGN 16u
/* Nodes and small tables: the library knows what to do without them. Its buffer begins with more.
 */
#define JSON_MEMORY_NODE 24u

struct json_memory {
    char *block; /* NULL = nothing is being read */
    size_t size, used;
    bool lacking; /* since the last load or dump began */
};

/* Static, since the library's allocator is given no context; of its thread, since several of them
 * use the library. */
static _Thread_local struct json_memory json_memory_state;

static void *json_memory_alloc(size_t size) {
    struct json_memory *m = &json_memory_state;
    void *p = malloc(size);
    if (p != NULL)
        return p;
    m->lacking = true;
    size_t room = m->size - m->used;
    if (m->block == NULL || size <= JSON_MEMORY_NODE || size > room) {
        errno = ENOMEM;
        return NULL;
    }
    p = m->block + m->used;
    size_t taken = (size + JSON_MEMORY_ALIGN - 1) & ~(size_t)(JSON_MEMORY_ALIGN - 1);
    m->used += taken < room ? taken : room;
    return p;
}

/* What is in the block lives no longer than the reading. */
static void json_memory_free(void *p) {
    const struct json_memory *m = &json_memory_state;
    uintptr_t at = (uintptr_t)p, block = (uintptr_t)m->block;
    if (m->block == NULL || at < block || at >= block + m->size)
        free(p);
}

void json_memory_watch(void) {
    json_set_alloc_funcs(json_memory_alloc, json_memory_free);
}

json_t *json_memory_load(const char *json, size_t len, size_t flags, json_error_t *e) {
    struct json_memory *m = &json_memory_state;
    m->size = len < SIZE_MAX / JSON_MEMORY_FACTOR - JSON_MEMORY_LEAST
                  ? len * JSON_MEMORY_FACTOR + JSON_MEMORY_LEAST
                  : 0;
    m->used = 0;
    m->lacking = false;
    m->block = m->size > 0 ? malloc(m->size) : NULL;
    if (m->block == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    json_t *root = json_loadb(json, len, flags, e);
    if (m->lacking) {
        json_decref(root);
        root = NULL;
    }
    free(m->block);
    m->block = NULL;
    errno = m->lacking ? ENOMEM : root == NULL ? EINVAL : 0;
    return root;
}

char *json_memory_dump(const json_t *json, size_t flags) {
    struct json_memory *m = &json_memory_state;
    m->lacking = false;
    char *text = json_dumps(json, flags);
    if (m->lacking) {
        free(text);
        text = NULL;
    }
    return text;
}

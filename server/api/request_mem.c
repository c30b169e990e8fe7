#include <stdint.h>
#include <stdlib.h>

#include "request_internal.h"

#define REQUEST_CHUNK_BYTES 2048u
#define REQUEST_ALIGN 16u

/* A list of chunks; the first is the one that small pieces are cut from. */
struct request_mem {
    struct request_mem *next;
    size_t used;
    size_t size;
    size_t total; /* of all chunks; valid in the first */
    _Alignas(16) char data[];
};

static struct request_mem *request_mem_chunk(struct request_mem *first, size_t size) {
    struct request_mem *chunk = malloc(sizeof(*chunk) + size);
    if (!chunk)
        return NULL;
    chunk->used = 0;
    chunk->size = size;
    chunk->next = first;
    chunk->total = sizeof(*chunk) + size + (first ? first->total : 0);
    return chunk;
}

void *request_mem_alloc(struct request_mem **mem, size_t size) {
    struct request_mem *first = *mem;
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + REQUEST_ALIGN - 1) & ~(size_t)(REQUEST_ALIGN - 1);
    if (!first || first->size - first->used < size) {
        first = request_mem_chunk(first, size > REQUEST_CHUNK_BYTES ? size : REQUEST_CHUNK_BYTES);
        if (!first)
            return NULL;
        *mem = first;
    }
    void *p = first->data + first->used;
    first->used += size;
    return p;
}

void request_mem_free(struct request_mem *mem) {
    while (mem) {
        struct request_mem *next = mem->next;
        free(mem);
        mem = next;
    }
}

size_t request_mem_total(const struct request_mem *mem) {
    return mem ? mem->total : 0;
}

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "verify_table.h"

#define VERIFY_SET_SIZE 1024u

/* SipHash with a key of the set: keys that somebody chose cannot all meet in one bucket. */
static uint64_t verify_set_hash(const struct verify_set *s, const char *text) {
    uint64_t h;
    _Static_assert(crypto_shorthash_BYTES == sizeof(h), "a hash is 64 bits");
    crypto_shorthash((unsigned char *)&h, (const unsigned char *)text, strlen(text), s->key);
    return h;
}

struct verify_set_item *verify_set_find(const struct verify_set *s, const char *text) {
    if (s->size == 0)
        return NULL;
    struct verify_set_item *item = s->buckets[verify_set_hash(s, text) % s->size];
    while (item != NULL && strcmp(item->text, text) != 0)
        item = item->next;
    return item;
}

static int verify_set_grow(struct verify_set *s, struct err *err) {
    size_t size = s->size == 0 ? VERIFY_SET_SIZE : s->size * 4;
    struct verify_set_item **buckets = calloc(size, sizeof(struct verify_set_item *));
    if (buckets == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "comparing keys: out of memory");
    if (s->size == 0)
        randombytes_buf(s->key, sizeof(s->key));
    for (size_t i = 0; i < s->size; i++) {
        while (s->buckets[i] != NULL) {
            struct verify_set_item *item = s->buckets[i];
            size_t at = verify_set_hash(s, item->text) % size;
            s->buckets[i] = item->next;
            item->next = buckets[at];
            buckets[at] = item;
        }
    }
    free(s->buckets);
    s->buckets = buckets;
    s->size = size;
    return 0;
}

int verify_set_add(struct verify_set *s, const char *text, uint64_t line,
                   struct verify_set_item **item, struct err *err) {
    size_t len = strlen(text) + 1;
    struct verify_set_item *old = verify_set_find(s, text);
    if (old != NULL) {
        if (item != NULL)
            *item = old;
        return 0;
    }
    if (s->count >= s->size && verify_set_grow(s, err) < 0)
        return -1;
    struct verify_set_item *fresh = malloc(sizeof(*fresh) + len);
    if (fresh == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "comparing keys: out of memory");
    size_t at = verify_set_hash(s, text) % s->size;
    *fresh = (struct verify_set_item){.next = s->buckets[at], .line = line};
    memcpy(fresh->text, text, len);
    s->buckets[at] = fresh;
    s->count++;
    if (item != NULL)
        *item = fresh;
    return 1;
}

void verify_set_done(struct verify_set *s) {
    for (size_t i = 0; i < s->size; i++) {
        while (s->buckets[i] != NULL) {
            struct verify_set_item *item = s->buckets[i];
            s->buckets[i] = item->next;
            free(item);
        }
    }
    free(s->buckets);
    *s = (struct verify_set){0};
}

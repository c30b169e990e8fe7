#include "blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blobs_internal.h"
#include "clock.h"
#include "fd.h"
#include "str.h"
#include "sync_request.h"

#define BLOBS_BUCKETS_FIRST 1024u
/* How many blobs are removed from the disk per turn of the loop: a user may have hundreds of
 * thousands. */
#define BLOBS_SWEEP 16u
/* And how many pins are taken back: a manifest has hundreds of thousands. */
#define BLOBS_UNPIN 1000u
/* The time of a file is moved at most this often: it only has to survive a restart roughly. */
#define BLOBS_TOUCH_MS ((uint64_t)60 * 60 * 1000)

uint64_t blobs_charge(uint64_t size) {
    return (size / BLOBS_BLOCK + 1) * BLOBS_BLOCK;
}

/* Who is asked about is asked about again: he moves to the front. */
struct blobs_user *blobs_user(struct blobs *b, const char *name, bool make) {
    struct blobs_user **at = &b->users;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    struct blobs_user *u = *at;
    if (u == NULL) {
        u = make && str_is_name(name) ? calloc(1, sizeof(*u)) : NULL;
        if (u == NULL || !str_copy(u->name, sizeof(u->name), name)) {
            free(u);
            return NULL;
        }
    } else {
        *at = u->next;
    }
    u->next = b->users;
    b->users = u;
    return u;
}

void blobs_name(char name[BLOBS_NAME_SIZE], const char *user, const unsigned char *sha256) {
    char hex[2 * BLOBS_SHA256_SIZE + 1];
    sync_sha256_text(sha256, hex);
    if (user != NULL)
        snprintf(name, BLOBS_NAME_SIZE, BLOBS_OWNERS "/%.63s/%.2s/%s", user, hex, hex + 2);
    else
        snprintf(name, BLOBS_NAME_SIZE, "%.2s/%s", hex, hex + 2);
}

/* The table. A manifest may name what nobody has ever hashed: with a key that is not known outside,
 * its author cannot have all of it in one bucket, where each would be looked for behind all others.
 */

static size_t blobs_bucket(const struct blobs *b, const struct blobs_user *u,
                           const unsigned char *sha256) {
    unsigned char text[BLOBS_SHA256_SIZE + sizeof(u)], out[crypto_shorthash_BYTES];
    uint64_t key;
    memcpy(text, sha256, BLOBS_SHA256_SIZE);
    memcpy(text + BLOBS_SHA256_SIZE, &u, sizeof(u));
    (void)crypto_shorthash(out, text, sizeof(text), b->seed);
    memcpy(&key, out, sizeof(key));
    return (size_t)key & (b->buckets - 1);
}

struct blobs_link *blobs_find(struct blobs *b, const struct blobs_user *u,
                              const unsigned char *sha256) {
    if (b->buckets == 0 || u == NULL)
        return NULL;
    struct blobs_link *l = b->table[blobs_bucket(b, u, sha256)];
    while (l != NULL && (l->user != u || memcmp(l->sha256, sha256, BLOBS_SHA256_SIZE) != 0))
        l = l->chain;
    return l;
}

static int blobs_grow(struct blobs *b) {
    size_t before = b->buckets, more = before == 0 ? BLOBS_BUCKETS_FIRST : before * 2;
    struct blobs_link **old = b->table;
    struct blobs_link **table = calloc(more, sizeof(struct blobs_link *));
    if (table == NULL)
        return before > 0 ? 0 : -1;
    b->table = table;
    b->buckets = more;
    for (size_t i = 0; i < before; i++) {
        struct blobs_link *next;
        for (struct blobs_link *l = old[i]; l != NULL; l = next) {
            size_t at = blobs_bucket(b, l->user, l->sha256);
            next = l->chain;
            l->chain = table[at];
            table[at] = l;
        }
    }
    free(old);
    return 0;
}

struct blobs_link *blobs_link(struct blobs *b, struct blobs_user *u, const unsigned char *sha256) {
    struct blobs_link *l = blobs_find(b, u, sha256);
    if (l != NULL)
        return l;
    if (b->links >= b->buckets && blobs_grow(b) < 0)
        return NULL;
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return NULL;
    size_t at = blobs_bucket(b, u, sha256);
    l->user = u;
    memcpy(l->sha256, sha256, BLOBS_SHA256_SIZE);
    l->chain = b->table[at];
    b->table[at] = l;
    b->links++;
    return l;
}

static void blobs_unchain(struct blobs *b, struct blobs_link *l) {
    struct blobs_link **at = &b->table[blobs_bucket(b, l->user, l->sha256)];
    while (*at != l)
        at = &(*at)->chain;
    *at = l->chain;
    b->links--;
}

/* Order by use. */

static void blobs_unlist(struct blobs_link *l) {
    struct blobs_user *u = l->user;
    *(l->prev != NULL ? &l->prev->next : &u->newest) = l->next;
    *(l->next != NULL ? &l->next->prev : &u->oldest) = l->prev;
    l->next = l->prev = NULL;
}

void blobs_present(struct blobs_link *l, uint64_t size, uint64_t used_ms) {
    struct blobs_user *u = l->user;
    if (l->present) {
        blobs_unlist(l);
    } else {
        l->present = true;
        l->size = size;
        l->touched_ms = used_ms;
        u->bytes += blobs_charge(size);
        u->count++;
    }
    l->used_ms = used_ms;
    l->next = u->newest;
    *(l->next != NULL ? &l->next->prev : &u->oldest) = l;
    u->newest = l;
}

static void blobs_unlink(struct blobs *b, const struct blobs_link *l) {
    char name[BLOBS_NAME_SIZE];
    struct stat st;
    blobs_name(name, l->user->name, l->sha256);
    unlinkat(b->dir, name, 0);
    blobs_name(name, NULL, l->sha256);
    if (fstatat(b->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
        unlinkat(b->dir, name, 0);
}

static void blobs_sweep(void *arg) {
    struct blobs *b = arg;
    for (unsigned i = 0; i < BLOBS_SWEEP && b->gone != NULL; i++) {
        struct blobs_link *l = b->gone;
        const struct blobs_link *again = blobs_find(b, l->user, l->sha256);
        b->gone = l->chain;
        if (again == NULL || !again->present) /* else the files are those of a new upload */
            blobs_unlink(b, l);
        free(l);
    }
    if (b->gone != NULL)
        loop_defer(b->options.loop, &b->sweep, blobs_sweep, b);
}

/* Also when it is pinned; `l` may be gone afterwards. */
static void blobs_evict(struct blobs *b, struct blobs_link *l) {
    struct blobs_user *u = l->user;
    bool later = b->options.loop != NULL && l->pins == 0;
    if (!later)
        blobs_unlink(b, l);
    blobs_unlist(l);
    l->present = false;
    u->bytes -= blobs_charge(l->size);
    u->count--;
    if (l->pins > 0)
        return;
    blobs_unchain(b, l);
    if (!later) {
        free(l);
        return;
    }
    l->chain = b->gone;
    b->gone = l;
    loop_defer(b->options.loop, &b->sweep, blobs_sweep, b);
}

int blobs_make_room(struct blobs *b, struct blobs_user *u, uint64_t more, struct err *err) {
    uint64_t quota = b->options.user_bytes;
    struct blobs_link *l = u->oldest;
    while (more > quota || u->bytes + u->reserved > quota - more) {
        struct blobs_link *before = NULL;
        while (l != NULL && l->pins > 0)
            l = l->prev;
        if (l == NULL || more > quota)
            return err_set(err, ERR_LIMIT, 0,
                           "your quota of %" PRIu64 " bytes for blobs does not hold %" PRIu64
                           " more: %" PRIu64 " are in use",
                           quota, more, u->bytes + u->reserved);
        before = l->prev;
        blobs_evict(b, l);
        l = before;
    }
    return 0;
}

void blobs_expire(struct blobs *b) {
    uint64_t now = clock_real_ms();
    b->expired_ms = now;
    for (struct blobs_user *u = b->users; u != NULL; u = u->next) {
        struct blobs_link *before;
        for (struct blobs_link *l = u->oldest; l != NULL; l = before) {
            before = l->prev;
            if (l->used_ms + b->options.age_ms > now)
                break;
            if (l->pins == 0)
                blobs_evict(b, l);
        }
    }
}

/* Use. */

bool blobs_has(struct blobs *b, const char *user, const unsigned char *sha256, uint64_t *size) {
    const struct blobs_link *l = blobs_find(b, blobs_user(b, user, false), sha256);
    if (l == NULL || !l->present)
        return false;
    if (size != NULL)
        *size = l->size;
    return true;
}

int blobs_read(struct blobs *b, const char *user, const unsigned char *sha256, uint64_t *size,
               struct err *err) {
    char name[BLOBS_NAME_SIZE];
    struct stat st;
    uint64_t now = clock_real_ms();
    struct blobs_link *l = blobs_find(b, blobs_user(b, user, false), sha256);
    if (l == NULL || !l->present)
        return err_set(err, ERR_INVALID, ENOENT, "there is no such blob");
    blobs_name(name, user, sha256);
    fd_cleanup int fd = openat(b->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != l->size) {
        blobs_evict(b, l); /* somebody was at the state directory */
        return err_set(err, ERR_INVALID, ENOENT, "there is no such blob");
    }
    blobs_present(l, l->size, now);
    if (now > l->touched_ms + BLOBS_TOUCH_MS) {
        futimens(fd, NULL);
        l->touched_ms = now;
    }
    *size = l->size;
    return fd_steal(&fd);
}

int blobs_pin(struct blobs *b, const char *user, const unsigned char *sha256) {
    struct blobs_user *u = blobs_user(b, user, true);
    struct blobs_link *l = u != NULL ? blobs_link(b, u, sha256) : NULL;
    if (l == NULL)
        return -1;
    l->pins++;
    return 0;
}

void blobs_unpin(struct blobs *b, const char *user, const unsigned char *sha256) {
    struct blobs_link *l = blobs_find(b, blobs_user(b, user, false), sha256);
    if (l == NULL || l->pins == 0)
        return;
    l->pins--;
    if (l->pins == 0 && !l->present) {
        blobs_unchain(b, l);
        free(l);
    }
}

/* Pins that are taken back, the next ones first. */
static void blobs_unpin_turn(void *arg) {
    struct blobs *b = arg;
    struct blobs_unpins *n = b->unpins;
    for (unsigned i = 0; i < BLOBS_UNPIN && n->count > 0; i++)
        blobs_unpin(b, n->user, n->pins[--n->count]);
    if (n->count == 0) {
        b->unpins = n->next;
        free(n->pins);
        free(n);
    }
    if (b->unpins != NULL)
        loop_defer(b->options.loop, &b->unpin, blobs_unpin_turn, b);
}

void blobs_unpin_all(struct blobs *b, const char *user, unsigned char (*pins)[BLOBS_SHA256_SIZE],
                     size_t count) {
    struct blobs_unpins *n = NULL;
    if (count > BLOBS_UNPIN && b->options.loop != NULL)
        n = calloc(1, sizeof(*n));
    if (n == NULL || !str_copy(n->user, sizeof(n->user), user)) {
        for (size_t i = 0; i < count; i++)
            blobs_unpin(b, user, pins[i]);
        free(pins);
        free(n);
        return;
    }
    n->pins = pins;
    n->count = count;
    n->next = b->unpins;
    b->unpins = n;
    loop_defer(b->options.loop, &b->unpin, blobs_unpin_turn, b);
}

struct blobs_usage blobs_usage(const struct blobs *b, const char *user) {
    struct blobs_usage usage = {.quota = b->options.user_bytes};
    for (const struct blobs_user *u = b->users; u != NULL; u = u->next)
        if (strcmp(u->name, user) == 0) {
            usage.bytes = u->bytes + u->reserved;
            usage.count = u->count;
        }
    return usage;
}

int blobs_parents(struct blobs *b, const char *name, struct err *err) {
    char part[BLOBS_NAME_SIZE];
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(part, name, (size_t)(slash - name));
        part[slash - name] = '\0';
        if (mkdirat(b->dir, part, 0700) < 0 && errno != EEXIST)
            return err_sys(err, "making the directory blobs/%s", part);
    }
    return 0;
}

struct blobs *blobs_open(int server_dir, const struct blobs_options *options, struct err *err) {
    struct blobs *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "opening the blob store: out of memory");
        return NULL;
    }
    b->options = *options;
    b->dir = b->tmp = -1;
    crypto_shorthash_keygen(b->seed);
    if ((mkdirat(server_dir, BLOBS_DIR, 0700) < 0 && errno != EEXIST) ||
        (b->dir = openat(server_dir, BLOBS_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) <
            0)
        err_sys(err, "opening the blob store");
    else if (blobs_start(b, err) == 0)
        return b;
    blobs_close(b);
    return NULL;
}

void blobs_close(struct blobs *b) {
    if (b == NULL)
        return;
    if (b->options.loop != NULL) {
        loop_defer_stop(b->options.loop, &b->sweep);
        loop_defer_stop(b->options.loop, &b->unpin);
    }
    while (b->unpins != NULL) {
        struct blobs_unpins *n = b->unpins;
        b->unpins = n->next;
        free(n->pins);
        free(n);
    }
    for (size_t i = 0; i < b->buckets; i++) {
        struct blobs_link *next;
        for (struct blobs_link *l = b->table[i]; l != NULL; l = next) {
            next = l->chain;
            free(l);
        }
    }
    free(b->table);
    while (b->gone != NULL) {
        struct blobs_link *l = b->gone;
        b->gone = l->chain;
        free(l);
    }
    while (b->users != NULL) {
        struct blobs_user *u = b->users;
        b->users = u->next;
        free(u);
    }
    fd_close(&b->tmp);
    fd_close(&b->dir);
    free(b);
}

/* Images that were made of images, and of which nothing will be made any more: another one stands
 * for "host" since the runner started, an imported one was removed from the state directory, or
 * process 1 is another program now. Whose they are stands in their names (maker.h), and is no
 * secret but cannot be guessed; the engine keeps those of which there still are containers, and
 * they are tried again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "image_pin.h"
#include "maker_internal.h"
#include "str.h"

#define PRUNE_SOON_NS (500 * CLOCK_NS_PER_MS) /* an import is a few renames */
#define PRUNE_AGAIN_NS (20 * CLOCK_NS_PER_S)
#define PRUNE_WANTED_MAX 1024u
#define PRUNE_PATH                                                                                 \
    "/images/json?filters=%7B%22reference%22%3A%5B%22pinfold-jail%22%2C%22pinfold-image%22%5D%7D"

/* Names that are to stay. */
struct prune_wanted {
    size_t count;
    char name[PRUNE_WANTED_MAX][JAIL_IMAGE_MAX];
};

static int prune_want(struct prune_wanted *w, const char *name) {
    if (w->count == PRUNE_WANTED_MAX) {
        return -1;
    }
    return str_copy(w->name[w->count++], JAIL_IMAGE_MAX, name) ? 0 : -1;
}

static bool prune_is_wanted(const struct prune_wanted *w, const char *name) {
    for (size_t i = 0; i < w->count; i++) {
        if (strcmp(w->name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* As the engine lists it: Podman puts a registry's name in front. -> NULL: it is not one of ours */
static const char *prune_own(const struct maker *m, const char *tag) {
    static const char *const kinds[] = {MAKER_JAIL_PREFIX, MAKER_IMAGE_PREFIX};
    const char *slash = strrchr(tag, '/');
    const char *name = slash != NULL ? slash + 1 : tag;
    size_t owner = strlen(m->cfg.owner);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t len = strlen(kinds[i]);
        if (strncmp(name, kinds[i], len) == 0 && strncmp(name + len, m->cfg.owner, owner) == 0 &&
            name[len + owner] == '-' && strspn(name, MAKER_NAME_CHARS) == strlen(name)) {
            return name;
        }
    }
    return NULL;
}

/* What is in the state directory. -1: it cannot be told, and nothing is removed. */
static int prune_imported(const struct maker *m, struct prune_wanted *w) {
    char ref[JAIL_IMAGE_MAX];
    uint8_t sha256[32];
    struct err err;
    int dir = openat(m->cfg.images_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = dir >= 0 ? fdopendir(dir) : NULL;
    if (list == NULL) {
        fd_close(&dir);
        return -1;
    }
    int rc = 0;
    for (struct dirent *e = readdir(list); e != NULL && rc == 0; e = readdir(list)) {
        if (!str_is_name(e->d_name)) {
            continue;
        }
        if (image_pin_read(m->cfg.images_dirfd, e->d_name, sha256, &err) == 0) {
            maker_image_ref(m, sha256, ref);
            rc = prune_want(w, ref);
        } else {
            rc = err.code == ENOENT ? 0 : -1; /* being removed; or it cannot be read */
        }
    }
    (void)closedir(list);
    return rc;
}

/* Each tag of the engine's list, with the id of its image. */
static void prune_each(struct maker *m, const json_t *root,
                       void (*fn)(struct maker *m, struct prune_wanted *w, const char *tag,
                                  const char *own, const char *id),
                       struct prune_wanted *w) {
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *image = json_array_get(root, i);
        const json_t *tags = json_object_get(image, "RepoTags");
        const char *id = json_string_value(json_object_get(image, "Id"));
        for (size_t n = 0; id != NULL && n < json_array_size(tags); n++) {
            const char *tag = json_string_value(json_array_get(tags, n));
            const char *own = tag != NULL ? prune_own(m, tag) : NULL;
            if (own != NULL) {
                fn(m, w, tag, own, id);
            }
        }
    }
}

/* What was derived of an image that stays, stays. */
static void prune_derived(struct maker *m, struct prune_wanted *w, const char *tag, const char *own,
                          const char *id) {
    char derived[JAIL_IMAGE_MAX];
    (void)tag;
    if (prune_is_wanted(w, own) && derive_name(m, id, derived) == 0) {
        (void)prune_want(w, derived);
    }
}

static void prune_gone(void *arg, const struct engine_reply *reply) {
    struct maker *m = arg;
    /* When what was derived of it is gone, an image can go, too. */
    m->prune.again = m->prune.again || (reply->status != 200 && reply->status != 404);
    if (--m->prune.left == 0) {
        m->prune.busy = false;
        prune_soon(m, m->prune.again ? PRUNE_AGAIN_NS : UINT64_MAX);
    }
}

static void prune_one(struct maker *m, struct prune_wanted *w, const char *tag, const char *own,
                      const char *id) {
    char path[2 * JAIL_IMAGE_MAX];
    struct err err;
    struct log_line l;
    (void)id;
    if (prune_is_wanted(w, own) || strspn(tag, MAKER_NAME_CHARS "/") != strlen(tag) ||
        snprintf(path, sizeof path, "/images/%s", tag) >= (int)sizeof path) {
        return;
    }
    const struct engine_request q = {.method = "DELETE", .path = path};
    if (engine_ask(m->engine, &q, prune_gone, m, &err) != 0) {
        m->prune.again = true;
        return;
    }
    m->prune.left++;
    log_begin(&l, m->cfg.log, LOG_INFO, "image.removed");
    log_str(&l, "image", own);
    log_end(&l);
}

static void prune_listed(void *arg, const struct engine_reply *reply) {
    struct maker *m = arg;
    char derived[JAIL_IMAGE_MAX];
    struct prune_wanted *w = calloc(1, sizeof *w);
    json_t *root = reply->status == 200
                       ? json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    bool well = w != NULL && json_is_array(root);
    well = well && (m->cfg.images_dirfd < 0 || prune_imported(m, w) == 0);
    well = well && derive_name(m, "", derived) == 0 && prune_want(w, derived) == 0;
    if (well && m->cfg.host.id[0] != '\0') {
        well = derive_name(m, m->cfg.host.id, derived) == 0 && prune_want(w, derived) == 0;
    }
    m->prune.left = 0;
    m->prune.again = !well;
    if (well) {
        prune_each(m, root, prune_derived, w);
        if (w->count < PRUNE_WANTED_MAX) {
            prune_each(m, root, prune_one, w);
        }
    }
    json_decref(root);
    free(w);
    if (m->prune.left == 0) {
        m->prune.busy = false;
        prune_soon(m, m->prune.again ? PRUNE_AGAIN_NS : UINT64_MAX);
    }
}

static void prune_begin(void *arg) {
    struct maker *m = arg;
    struct err err;
    const struct engine_request q = {.method = "GET", .path = PRUNE_PATH};
    m->prune.busy = engine_ask(m->engine, &q, prune_listed, m, &err) == 0;
    /* Else the engine comes back, and this with it. */
}

void prune_soon(struct maker *m, uint64_t wait_ns) {
    if (!m->cfg.prunes || m->prune.busy || wait_ns == UINT64_MAX) {
        return;
    }
    uint64_t due = clock_mono_ns() + wait_ns;
    if (m->prune.timer.slot == 0 || due < m->prune.timer.due_ns) {
        (void)loop_timer_at(m->cfg.loop, &m->prune.timer, due, prune_begin, m, NULL);
    }
}

static void prune_noticed(void *arg, uint32_t events) {
    struct maker *m = arg;
    char sink[4096];
    (void)events;
    while (read(m->prune.watch, sink, sizeof sink) > 0) {
    }
    if (m->prune.busy) {
        m->prune.again = true;
    }
    prune_soon(m, PRUNE_SOON_NS);
}

int prune_start(struct maker *m, struct err *err) {
    char path[32];
    if (!m->cfg.prunes || m->cfg.images_dirfd < 0) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", m->cfg.images_dirfd);
    m->prune.watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (m->prune.watch < 0 ||
        inotify_add_watch(m->prune.watch, path, IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE) < 0) {
        return err_sys(err, "watching the directory of images");
    }
    return loop_add(m->cfg.loop, &m->prune.src, m->prune.watch, EPOLLIN, prune_noticed, m, err);
}

void prune_stop(struct maker *m) {
    loop_timer_stop(m->cfg.loop, &m->prune.timer);
    loop_del(m->cfg.loop, &m->prune.src);
    fd_close(&m->prune.watch);
}

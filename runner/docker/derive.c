/* The image of a container is derived from the one that was asked for: a layer with process 1 and
 * the directories that are mounted on. It is made once, named after what it is made of, and found
 * again by that name. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "clock.h"
#include "fd.h"
#include "load.h"
#include "maker_internal.h"
#include "recipe.h"
#include "str.h"

#define DERIVE_LAYER_MAX (16u << 20)
#define DERIVE_MS 60000u
#define DERIVE_LOOK_NS (100 * CLOCK_NS_PER_MS)

static void derive_find(struct container *c);

static void derive_failed(struct container *c, const struct engine_reply *reply, const char *what) {
    struct err err;
    (void)engine_error(reply, what, &err);
    container_fail(c, reply->status == 404 ? JAIL_STAGE_IMAGE : "engine", &err);
}

static void derive_keep(struct container *c) {
    struct maker *m = c->maker;
    unsigned at = m->images < MAKER_IMAGES_MAX ? m->images++ : m->image_next++ % MAKER_IMAGES_MAX;
    (void)str_copy(m->image[at].ref, sizeof m->image[at].ref, c->ref);
    (void)str_copy(m->image[at].derived, sizeof m->image[at].derived, c->image);
    container_create(c);
}

/* ---- making it ---- */

static void derive_scrapped(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status == 204 || reply->status == 404) {
        c->scrap[0] = '\0';
    } else {
        sweep_soon(c->maker, 0);
    }
    derive_keep(c);
}

static void derive_committed(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 201) {
        derive_failed(c, reply, "deriving an image");
        return;
    }
    char path[MAKER_NAME_MAX + 64];
    (void)snprintf(path, sizeof path, "/containers/%s?force=1&v=1", c->scrap);
    const struct engine_request q = {.method = "DELETE", .path = path};
    (void)container_ask(c, CONTAINER_SCRAP, &q, derive_scrapped);
}

static void derive_filled(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    char body[160];
    char path[2 * MAKER_NAME_MAX + JAIL_IMAGE_MAX + 64];
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 200) {
        derive_failed(c, reply, "putting process 1 into an image");
        return;
    }
    (void)snprintf(path, sizeof path, "/commit?container=%s&repo=%.*s&tag=%s&pause=0", c->scrap,
                   (int)(strchr(c->image, ':') - c->image), c->image, strchr(c->image, ':') + 1);
    int n = snprintf(body, sizeof body, "{\"Labels\":{\"%s\":\"%s\"}}", RECIPE_LABEL_OWNER,
                     c->maker->cfg.owner);
    const struct engine_request q = {
        .method = "POST", .path = path, .body = body, .len = (size_t)n, .timeout_ms = DERIVE_MS};
    (void)container_ask(c, CONTAINER_KEEP, &q, derive_committed);
}

static void derive_imported(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 200 || strstr(reply->body, "\"error\"") != NULL) {
        derive_failed(c, reply, "making an image");
        return;
    }
    derive_keep(c);
}

/* `path`: where to. The layer is the body. */
static void derive_put(struct container *c, enum container_phase phase, const char *method,
                       const char *path, engine_done *done) {
    struct buf layer;
    struct err err;
    buf_init(&layer, DERIVE_LAYER_MAX);
    if (recipe_layer(c->maker->cfg.init_fd, phase == CONTAINER_IMPORT, &layer, &err) != 0) {
        container_fail(c, "container", &err);
    } else {
        const struct engine_request q = {.method = method,
                                         .path = path,
                                         .type = "application/x-tar",
                                         .body = layer.data,
                                         .len = layer.len,
                                         .timeout_ms = DERIVE_MS};
        (void)container_ask(c, phase, &q, done);
    }
    buf_done(&layer);
}

static void derive_based(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    char path[MAKER_NAME_MAX + 64];
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 201) {
        derive_failed(c, reply, "making a container to derive an image");
        return;
    }
    (void)snprintf(path, sizeof path, "/containers/%s/archive?path=/", c->scrap);
    derive_put(c, CONTAINER_FILL, "PUT", path, derive_filled);
}

/* It is never started. */
static void derive_base(struct container *c) {
    char path[MAKER_NAME_MAX + 64];
    char body[512];
    (void)snprintf(c->scrap, sizeof c->scrap, "%.80s-image", c->name);
    (void)snprintf(path, sizeof path, "/containers/create?name=%s", c->scrap);
    int n = snprintf(body, sizeof body,
                     "{\"Image\":\"%s\",\"Entrypoint\":[\"%s\"],\"NetworkDisabled\":true,"
                     "\"HostConfig\":{\"NetworkMode\":\"none\",\"LogConfig\":{\"Type\":\"none\"}},"
                     "\"Labels\":{\"%s\":\"%s\"}}",
                     c->ref, RECIPE_INIT, RECIPE_LABEL_OWNER, c->maker->cfg.owner);
    const struct engine_request q = {
        .method = "POST", .path = path, .body = body, .len = (size_t)n, .timeout_ms = DERIVE_MS};
    (void)container_ask(c, CONTAINER_BASE, &q, derive_based);
}

static void derive_found(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    char path[JAIL_IMAGE_MAX + 64];
    if (container_stopped(c)) {
        return;
    }
    if (reply->status == 200) {
        derive_keep(c);
    } else if (reply->status != 404) {
        derive_failed(c, reply, "looking for an image");
    } else if (c->ref[0] == '\0') {
        (void)snprintf(path, sizeof path, "/images/create?fromSrc=-&repo=%s", c->image);
        derive_put(c, CONTAINER_IMPORT, "POST", path, derive_imported);
    } else {
        derive_base(c);
    }
}

static void derive_find(struct container *c) {
    char path[JAIL_IMAGE_MAX + 32];
    (void)snprintf(path, sizeof path, "/images/%s/json", c->image);
    const struct engine_request q = {.method = "GET", .path = path};
    (void)container_ask(c, CONTAINER_FIND, &q, derive_found);
}

/* ---- what is it made of? ---- */

/* Named by the engine's own id of the image, whose digest that is, and by process 1. */
int derive_name(const struct maker *m, const char *id, char out[JAIL_IMAGE_MAX]) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof hash + 1];
    (void)crypto_hash_sha256(hash, (const unsigned char *)id, strlen(id));
    (void)sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    int n = snprintf(out, JAIL_IMAGE_MAX, MAKER_JAIL_PREFIX "%s-%.16s-%.24s", m->cfg.owner, m->tag,
                     hex);
    return n < JAIL_IMAGE_MAX ? 0 : -1;
}

/* ---- loading it ---- */

void derive_stop(struct maker *m) {
    loop_del(m->cfg.loop, &m->load.src);
    fd_close(&m->load.sock);
    if (m->load.busy) {
        (void)kill(m->load.pid, SIGKILL); /* our own child, not waited for */
        (void)waitpid(m->load.pid, NULL, 0);
        m->load.busy = false;
    }
}

static void derive_report(void *arg, uint32_t events) {
    struct maker *m = arg;
    struct maker_load *l = &m->load;
    struct load_report r;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    (void)events;
    ssize_t n = fd_recv(l->sock, &r, sizeof r, fds, &nfds, NULL, &err);
    if (n < 0 && err.code == EAGAIN) {
        return;
    }
    for (size_t i = 0; n > 0 && i < nfds; i++) {
        fd_close(&fds[i]);
    }
    bool whole = n == (ssize_t)sizeof r;
    r.text[sizeof r.text - 1] = '\0';
    const char *text = whole ? r.text : "it was not loaded to its end";
    l->code = whole ? r.code : EIO;
    str_escape(l->text, sizeof l->text, text, strlen(text));
    derive_stop(m); /* it has nothing more to do */
}

static int derive_load_start(struct container *c, struct err *err) {
    struct maker *m = c->maker;
    struct maker_load *l = &m->load;
    fd_cleanup int dir =
        openat(m->cfg.images_dirfd, c->image_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        return err_sys(err, "opening image %s", c->image_name);
    }
    const struct load_wish wish = {.engine = m->cfg.socket,
                                   .prefix = engine_prefix(m->engine),
                                   .ref = c->ref,
                                   .name = c->image_name,
                                   .image = dir};
    if (load_start(&wish, &l->sock, &l->pid, err) != 0) {
        return -1;
    }
    l->busy = true;
    l->number++;
    (void)str_copy(l->ref, sizeof l->ref, c->ref);
    if (loop_add(m->cfg.loop, &l->src, l->sock, EPOLLIN, derive_report, m, err) != 0) {
        derive_stop(m);
        return -1;
    }
    return 0;
}

static void derive_again(void *arg) {
    derive_image(arg);
}

/* Looks again a little later, until it is there or could not be loaded; the jail's own patience
 * ends it when that takes long. */
static void derive_load(struct container *c) {
    struct maker_load *l = &c->maker->load;
    struct err err;
    if (!l->busy && c->load != 0 && c->load == l->number && l->code != 0) {
        (void)err_set(&err, ERR_STATE, l->code, "image %s: %s", c->image_name, l->text);
        container_fail(c, JAIL_STAGE_IMAGE, &err);
        return;
    }
    if (!l->busy && derive_load_start(c, &err) != 0) {
        container_fail(c, JAIL_STAGE_IMAGE, &err);
        return;
    }
    c->load = strcmp(l->ref, c->ref) == 0 ? l->number : 0;
    c->phase = CONTAINER_LOAD;
    (void)loop_timer_at(c->maker->cfg.loop, &c->timer, clock_mono_ns() + DERIVE_LOOK_NS,
                        derive_again, c, NULL);
}

static void derive_looked(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status == 404 &&
        strncmp(c->ref, MAKER_IMAGE_PREFIX, strlen(MAKER_IMAGE_PREFIX)) == 0) {
        derive_load(c);
        return;
    }
    if (reply->status != 200) {
        derive_failed(c, reply, "looking for an image");
        return;
    }
    json_t *root = json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(root, "Id"));
    int rc = id != NULL ? derive_name(c->maker, id, c->image) : -1;
    json_decref(root);
    if (rc != 0) {
        derive_failed(c, reply, "reading an image's description");
        return;
    }
    derive_find(c);
}

void derive_image(struct container *c) {
    struct maker *m = c->maker;
    char path[JAIL_IMAGE_MAX + 32];
    for (unsigned i = 0; i < m->images; i++) {
        if (strcmp(m->image[i].ref, c->ref) == 0) {
            (void)str_copy(c->image, sizeof c->image, m->image[i].derived);
            container_create(c);
            return;
        }
    }
    /* The empty one; and the pinned one, of which may be left what was derived of it. */
    if (c->ref[0] == '\0' || strcmp(c->ref, m->cfg.host.id) == 0) {
        (void)derive_name(m, c->ref, c->image);
        derive_find(c);
        return;
    }
    (void)snprintf(path, sizeof path, "/images/%s/json", c->ref);
    const struct engine_request q = {.method = "GET", .path = path};
    (void)container_ask(c, CONTAINER_LOOK, &q, derive_looked);
}

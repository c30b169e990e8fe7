#include "maker.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fd.h"
#include "image_pin.h"
#include "maker_internal.h"
#include "recipe.h"
#include "str.h"

#define MAKER_HOST "host" /* the image that stands for what the engine's host offers by default */
#define MAKER_PROFILE_MAX (1u << 20)
#define MAKER_PRUNE_NS (2 * CLOCK_NS_PER_S) /* first what somebody waits for */

/* An imported image is known to the engine by its digest: one that was imported anew is another
 * one. */
void maker_image_ref(const struct maker *m, const uint8_t sha256[32], char out[JAIL_IMAGE_MAX]) {
    char hex[2 * 32 + 1];
    (void)sodium_bin2hex(hex, sizeof hex, sha256, 32);
    (void)snprintf(out, JAIL_IMAGE_MAX, MAKER_IMAGE_PREFIX "%s-%s", m->cfg.owner, hex);
}

static int maker_image(void *arg, const char *name, char ref[JAIL_IMAGE_MAX], uint8_t sha256[32],
                       struct err *err) {
    const struct maker *m = arg;
    if (strcmp(name, MAKER_HOST) == 0 && m->cfg.host.id[0] == '\0') {
        return err_set(err, ERR_INVALID, ENOENT,
                       "pinfold-runner-docker was not told what image \"host\" stands for "
                       "(--host-image)");
    }
    if (strcmp(name, MAKER_HOST) == 0) {
        (void)str_copy(ref, JAIL_IMAGE_MAX, m->cfg.host.id);
        memcpy(sha256, m->cfg.host.sha256, 32);
        return 0;
    }
    if (m->cfg.images_dirfd < 0 || !str_is_name(name)) {
        return err_set(err, ERR_INVALID, ENOENT, "there is no image %.64s", name);
    }
    if (image_pin_read(m->cfg.images_dirfd, name, sha256, err) != 0) {
        return -1;
    }
    maker_image_ref(m, sha256, ref);
    return 0;
}

static const char *maker_health(void *arg) {
    const struct maker *m = arg;
    return engine_health(m->engine);
}

/* An engine that has come back may have lost images, and have kept containers. */
static void maker_engine_changed(void *arg) {
    struct maker *m = arg;
    if (engine_life(m->engine) != m->life) {
        m->life = engine_life(m->engine);
        m->images = 0;
        sweep_soon(m, 0);
        prune_soon(m, MAKER_PRUNE_NS);
    }
    m->cfg.changed(m->cfg.arg);
}

static int maker_profiles(struct maker *m, struct err *err) {
    for (int set = 0; set < 2; set++) {
        struct buf text;
        buf_init(&text, MAKER_PROFILE_MAX);
        if (seccomp_profile((enum policy_syscalls)set, &text, err) != 0) {
            buf_done(&text);
            return -1;
        }
        if (snprintf(m->profile_path[set], MAKER_PATH_MAX, "%s/docker.seccomp.%d", m->cfg.run_dir,
                     set) >= MAKER_PATH_MAX ||
            fd_write_atomic(AT_FDCWD, m->profile_path[set], text.data, text.len, 0600, err) != 0) {
            buf_done(&text);
            return -1;
        }
        m->profile[set] = buf_take(&text);
    }
    return 0;
}

/* What an image was derived with: a new pinfold-init makes new ones. */
static int maker_tag(struct maker *m, struct err *err) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof hash + 1];
    struct buf layer;
    buf_init(&layer, 16u << 20);
    int rc = recipe_layer(m->cfg.init_fd, true, &layer, err);
    if (rc == 0) {
        (void)crypto_hash_sha256(hash, (const unsigned char *)layer.data, layer.len);
        (void)sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
        (void)snprintf(m->tag, sizeof m->tag, "%.16s", hex);
    }
    buf_done(&layer);
    return rc;
}

struct maker *maker_new(const struct maker_config *cfg, struct err *err) {
    struct maker *m = calloc(1, sizeof *m);
    if (m == NULL || sodium_init() < 0) {
        free(m);
        (void)err_set(err, ERR_SYSTEM, ENOMEM, "preparing to make containers: out of memory");
        return NULL;
    }
    m->cfg = *cfg;
    m->load.sock = m->load.src.fd = -1;
    m->prune.watch = m->prune.src.fd = -1;
    m->jails = (struct jail_maker){.contained = true,
                                   .arg = m,
                                   .begin = container_begin,
                                   .end = container_end,
                                   .image = maker_image,
                                   .health = maker_health};
    const struct engine_config engine = {
        .loop = cfg->loop, .socket = cfg->socket, .changed = maker_engine_changed, .arg = m};
    m->engine = engine_new(&engine, err);
    if (m->engine == NULL || maker_profiles(m, err) != 0 || maker_tag(m, err) != 0 ||
        prune_start(m, err) != 0) {
        maker_free(m);
        return NULL;
    }
    return m;
}

void maker_free(struct maker *m) {
    if (m == NULL) {
        return;
    }
    derive_stop(m);
    prune_stop(m);
    loop_timer_stop(m->cfg.loop, &m->sweep_timer);
    engine_free(m->engine);
    free(m->profile[0]);
    free(m->profile[1]);
    free(m);
}

const struct jail_maker *maker_jails(const struct maker *m) {
    return &m->jails;
}

struct engine *maker_engine(const struct maker *m) {
    return m->engine;
}

bool maker_swept(const struct maker *m) {
    return m->swept;
}

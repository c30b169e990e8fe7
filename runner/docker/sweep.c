/* Containers of ours that nobody here knows: of an earlier life, or left when the engine did not
 * answer. They are found by their label. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "maker_internal.h"
#include "recipe.h"

#define SWEEP_AGAIN_NS (2 * CLOCK_NS_PER_S)

static void sweep_begin(void *arg);

void sweep_soon(struct maker *m, uint64_t wait_ns) {
    uint64_t due = clock_mono_ns() + wait_ns;
    m->sweep_again = true;
    if (!m->sweeping && (m->sweep_timer.slot == 0 || due < m->sweep_timer.due_ns)) {
        (void)loop_timer_at(m->cfg.loop, &m->sweep_timer, due, sweep_begin, m, NULL);
    }
}

static void sweep_done(struct maker *m, bool well) {
    m->sweeping = false;
    m->swept = m->swept || (well && !m->sweep_again);
    if (!well || m->sweep_again) {
        sweep_soon(m, well ? CLOCK_NS_PER_MS * 50 : SWEEP_AGAIN_NS);
    }
}

static void sweep_removed(void *arg, const struct engine_reply *reply) {
    struct maker *m = arg;
    if (reply->status != 204 && reply->status != 404) {
        m->sweep_again = true; /* 409: somebody asked for that before, and it is not done */
    }
    if (--m->sweep_left == 0) {
        sweep_done(m, reply->status != 0);
    }
}

static bool sweep_known(const struct maker *m, const char *name) {
    for (const struct container *c = m->containers; c != NULL; c = c->next) {
        if (strcmp(c->name, name) == 0 || (*name != '\0' && strcmp(c->scrap, name) == 0)) {
            return true;
        }
    }
    return false;
}

/* By its id: one that an engine did not remove to the end may have lost its name. */
static void sweep_remove(struct maker *m, const char *id, const char *name) {
    char path[256];
    struct err err;
    struct log_line l;
    if (snprintf(path, sizeof path, "/containers/%s?force=1&v=1", id) >= (int)sizeof path ||
        *id == '\0' || strspn(id, "0123456789abcdef") != strlen(id)) {
        return;
    }
    const struct engine_request q = {.method = "DELETE", .path = path};
    if (engine_ask(m->engine, &q, sweep_removed, m, &err) != 0) {
        m->sweep_again = true;
        return;
    }
    m->sweep_left++;
    log_begin(&l, m->cfg.log, LOG_INFO, "leftover.removed");
    log_str(&l, "container", name);
    log_end(&l);
}

static void sweep_listed(void *arg, const struct engine_reply *reply) {
    struct maker *m = arg;
    json_t *root = reply->status == 200
                       ? json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    m->sweep_left = 0;
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *one = json_array_get(root, i);
        const char *id = json_string_value(json_object_get(one, "Id"));
        const char *name = json_string_value(json_array_get(json_object_get(one, "Names"), 0));
        name = name != NULL && name[0] == '/' ? name + 1 : "";
        if (id != NULL && !sweep_known(m, name)) {
            sweep_remove(m, id, name);
        }
    }
    bool well = json_is_array(root);
    json_decref(root);
    if (m->sweep_left == 0) {
        sweep_done(m, well);
    }
}

static void sweep_begin(void *arg) {
    struct maker *m = arg;
    char path[256];
    struct err err;
    /* {"label":["dev.pinfold.owner=…"]} */
    (void)snprintf(
        path, sizeof path,
        "/containers/json?all=1&filters=%%7B%%22label%%22%%3A%%5B%%22%s%%3D%s%%22%%5D%%7D",
        RECIPE_LABEL_OWNER, m->cfg.owner);
    const struct engine_request q = {.method = "GET", .path = path};
    m->sweep_again = false;
    m->sweeping = true;
    if (engine_ask(m->engine, &q, sweep_listed, m, &err) != 0) {
        sweep_done(m, false);
    }
}

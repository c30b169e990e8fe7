#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "maker_internal.h"
#include "place.h"
#include "recipe.h"
#include "str.h"
#include "take.h"

#define CONTAINER_TAKE_NS (5 * CLOCK_NS_PER_S) /* from its start to its socket */
#define CONTAINER_LOOK_NS (CLOCK_NS_PER_MS / 2)
#define CONTAINER_PLACE_NS (10 * CLOCK_NS_PER_S)
#define CONTAINER_GONE_NS (5 * CLOCK_NS_PER_S) /* for the engine to remove it */
#define CONTAINER_AGAIN_NS (20 * CLOCK_NS_PER_MS)
#define CONTAINER_MEMORY_MIN (6u << 20) /* engines refuse less; the jail's own limits are exact */
#define CONTAINER_CPUS_MIN 10u
#define CONTAINER_BODY_MAX (1u << 20)

static void container_remove(struct container *c);
static void container_inspect(struct container *c);

static void container_free(struct container *c) {
    struct maker *m = c->maker;
    for (struct container **at = &m->containers; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    loop_timer_stop(m->cfg.loop, &c->timer);
    loop_del(m->cfg.loop, &c->report_src);
    fd_close(&c->report);
    if (c->placer > 0) {
        (void)kill(c->placer, SIGKILL); /* our own child, not waited for: the number is its own */
        (void)waitpid(c->placer, NULL, 0);
    }
    if (c->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
    }
    fd_close(&c->pidfd);
    fd_close(&c->control);
    free(c);
}

void container_fail(struct container *c, const char *stage, const struct err *err) {
    jail_fail(c->jail, stage, err->code != 0 ? err->code : EIO, err->text);
}

bool container_stopped(struct container *c) {
    c->asked = false;
    if (c->ending) {
        container_remove(c);
        return true;
    }
    return c->jail->state == JAIL_DYING; /* end() follows from the loop */
}

int container_ask(struct container *c, enum container_phase phase, const struct engine_request *q,
                  engine_done *done) {
    struct err err;
    c->phase = phase;
    if (engine_ask(c->maker->engine, q, done, c, &err) != 0) {
        container_fail(c, "engine", &err);
        return -1;
    }
    c->asked = true;
    return 0;
}

/* ---- the end ---- */

static void container_gone(struct container *c) {
    struct jail *j = c->jail;
    j->made = NULL;
    container_free(c);
    jail_removed(j);
}

/* The engine does not remove it now: it is found by its label when it answers again. */
static void container_leave(struct container *c) {
    sweep_soon(c->maker, CLOCK_NS_PER_S);
    container_gone(c);
}

static void container_remove_again(void *arg) {
    container_remove(arg);
}

static void container_removed(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    c->asked = false;
    if (reply->status == 404 || reply->status == 204) {
        container_gone(c);
    } else if (reply->status == 0 || clock_mono_ns() > c->deadline_ns) {
        container_leave(c);
    } else {
        /* 409: its end, or the removal that was asked for before, is not done yet. */
        (void)loop_timer_at(c->maker->cfg.loop, &c->timer, clock_mono_ns() + CONTAINER_AGAIN_NS,
                            container_remove_again, c, NULL);
    }
}

static void container_remove(struct container *c) {
    char path[MAKER_NAME_MAX + 64];
    struct err err;
    if (c->phase != CONTAINER_END) {
        c->phase = CONTAINER_END;
        c->deadline_ns = clock_mono_ns() + CONTAINER_GONE_NS;
        if (c->pidfd >= 0) {
            (void)syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
        }
        if (c->scrap[0] != '\0') {
            sweep_soon(c->maker, 0);
        }
    }
    if (!c->made) {
        container_gone(c);
        return;
    }
    /* Others may have given it another name; that of one that was just asked for is our own. */
    (void)snprintf(path, sizeof path, "/containers/%s?force=1&v=1",
                   c->id[0] != '\0' ? c->id : c->name);
    const struct engine_request q = {.method = "DELETE", .path = path, .timeout_ms = 5000};
    if (engine_ask(c->maker->engine, &q, container_removed, c, &err) != 0) {
        container_leave(c);
        return;
    }
    c->asked = true;
}

void container_end(void *arg, struct jail *jail) {
    struct container *c = jail->made;
    (void)arg;
    c->ending = true;
    loop_timer_stop(c->maker->cfg.loop, &c->timer);
    if (!c->asked) {
        container_remove(c); /* else when the answer is here, which may be that it was made */
    }
}

/* ---- placing ---- */

static void container_born(struct container *c, const struct place_report *r, int writable_fd) {
    struct jail *j = c->jail;
    struct err err;
    const struct jail_birth birth = {.pid = c->pid,
                                     .pidfd = fd_steal(&c->pidfd),
                                     .control = fd_steal(&c->control),
                                     .writable_fd = writable_fd,
                                     .one_id = r->one_id != 0,
                                     .id_base = r->id_base};
    c->phase = CONTAINER_UP;
    if (jail_born(j, &birth, &err) != 0) {
        container_fail(c, "container", &err);
    }
}

static void container_report(void *arg, uint32_t events) {
    struct container *c = arg;
    struct place_report r;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    (void)events;
    ssize_t n = fd_recv(c->report, &r, sizeof r, fds, &nfds, NULL, &err);
    if (n < 0 && err.code == EAGAIN) {
        return;
    }
    loop_timer_stop(c->maker->cfg.loop, &c->timer);
    loop_del(c->maker->cfg.loop, &c->report_src);
    fd_close(&c->report);
    (void)waitpid(c->placer, NULL, 0); /* it has nothing more to do */
    c->placer = 0;
    if (c->jail->state != JAIL_DYING && n == (ssize_t)sizeof r && r.code == 0 && nfds == 1) {
        container_born(c, &r, fds[0]);
        return;
    }
    for (size_t i = 0; n > 0 && i < nfds; i++) {
        fd_close(&fds[i]);
    }
    if (c->jail->state == JAIL_DYING) {
        return;
    }
    if (n == (ssize_t)sizeof r) {
        r.step[sizeof r.step - 1] = r.text[sizeof r.text - 1] = '\0';
        (void)err_set(&err, ERR_STATE, r.code, "a container could not be prepared: %s (step %s)",
                      r.text, r.step);
    } else {
        (void)err_set(&err, ERR_STATE, EIO, "a container could not be prepared");
    }
    container_fail(c, "container", &err);
}

static void container_place_late(void *arg) {
    struct container *c = arg;
    struct err err;
    (void)err_set(&err, ERR_STATE, ETIMEDOUT, "a container was not prepared in time");
    container_fail(c, "container", &err);
}

static void container_place(struct container *c) {
    struct err err;
    struct loop *loop = c->maker->cfg.loop;
    const struct place_wish wish = {.pid = c->pid,
                                    .pidfd = c->pidfd,
                                    .writable = c->writable,
                                    .disk_bytes = c->limits.v[LIMIT_DISK_BYTES],
                                    .inodes = c->limits.v[LIMIT_INODES]};
    c->phase = CONTAINER_PLACE;
    if (place_start(&wish, &c->report, &c->placer, &err) != 0 ||
        loop_add(loop, &c->report_src, c->report, EPOLLIN, container_report, c, &err) != 0 ||
        loop_timer_at(loop, &c->timer, clock_mono_ns() + CONTAINER_PLACE_NS, container_place_late,
                      c, &err) != 0) {
        container_fail(c, "container", &err);
    }
}

/* ---- taking ---- */

static void container_take(void *arg) {
    struct container *c = arg;
    struct err err;
    uint64_t now = clock_mono_ns();
    c->control = take_control(c->pidfd, c->pid, &err);
    if (c->control >= 0) {
        container_place(c);
    } else if (err.code == EAGAIN && now < c->deadline_ns) {
        (void)loop_timer_at(c->maker->cfg.loop, &c->timer, now + CONTAINER_LOOK_NS, container_take,
                            c, NULL);
    } else {
        container_fail(c, "container", &err);
    }
}

static void container_inspected(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    struct err err;
    if (container_stopped(c)) {
        return;
    }
    json_t *root = reply->status == 200
                       ? json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    json_int_t pid = json_integer_value(json_object_get(json_object_get(root, "State"), "Pid"));
    json_decref(root);
    if (reply->status != 200) {
        (void)engine_error(reply, "looking at a container", &err);
        container_fail(c, "engine", &err);
        return;
    }
    c->pid = pid > 0 && pid < INT32_MAX ? (pid_t)pid : 0;
    c->pidfd = take_process(c->pid, c->id, &err);
    if (c->pidfd < 0) {
        container_fail(c, "container", &err);
        return;
    }
    c->phase = CONTAINER_TAKE;
    c->deadline_ns = clock_mono_ns() + CONTAINER_TAKE_NS;
    container_take(c);
}

static void container_inspect(struct container *c) {
    char path[MAKER_ID_SIZE + 32];
    (void)snprintf(path, sizeof path, "/containers/%s/json", c->id);
    const struct engine_request q = {.method = "GET", .path = path};
    (void)container_ask(c, CONTAINER_INSPECT, &q, container_inspected);
}

/* ---- creating and starting ---- */

static void container_started(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    struct err err;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 204) {
        (void)engine_error(reply, "starting a container", &err);
        container_fail(c, "engine", &err);
        return;
    }
    container_inspect(c);
}

static bool container_read_id(struct container *c, const struct engine_reply *reply) {
    json_t *root = json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(root, "Id"));
    bool well = id != NULL && strlen(id) == sizeof c->id - 1 &&
                strspn(id, "0123456789abcdef") == strlen(id) && str_copy(c->id, sizeof c->id, id);
    json_decref(root);
    return well;
}

static void container_created(void *arg, const struct engine_reply *reply) {
    struct container *c = arg;
    struct err err;
    if (container_stopped(c)) {
        return;
    }
    if (reply->status != 201 || !container_read_id(c, reply)) {
        (void)engine_error(reply, "making a container", &err);
        /* The image that was derived is gone, or what it is made of. */
        container_fail(c, reply->status == 404 ? JAIL_STAGE_IMAGE : "engine", &err);
        c->maker->images = 0;
        return;
    }
    char path[MAKER_ID_SIZE + 32];
    (void)snprintf(path, sizeof path, "/containers/%s/start", c->id);
    const struct engine_request q = {.method = "POST", .path = path, .timeout_ms = 20000};
    (void)container_ask(c, CONTAINER_START, &q, container_started);
}

void container_create(struct container *c) {
    struct maker *m = c->maker;
    struct buf body;
    struct err err;
    char path[MAKER_NAME_MAX + 64];
    struct recipe r = {.owner = m->cfg.owner,
                       .name = c->name,
                       .image = c->image,
                       .seccomp = engine_is_podman(m->engine) ? m->profile_path[c->syscalls]
                                                              : m->profile[c->syscalls],
                       .limits = c->limits,
                       .ceiling = c->ceiling,
                       .core_bytes = c->jail->host->core_bytes,
                       .podman = engine_is_podman(m->engine)};
    if (r.limits.v[LIMIT_MEM_BYTES] < CONTAINER_MEMORY_MIN) {
        r.limits.v[LIMIT_MEM_BYTES] = CONTAINER_MEMORY_MIN;
    }
    if (r.limits.v[LIMIT_CPUS_MILLI] < CONTAINER_CPUS_MIN) {
        r.limits.v[LIMIT_CPUS_MILLI] = CONTAINER_CPUS_MIN;
    }
    buf_init(&body, CONTAINER_BODY_MAX);
    (void)snprintf(path, sizeof path, "/containers/create?name=%s", c->name);
    if (recipe_container(&r, &body, &err) != 0) {
        container_fail(c, "container", &err);
    } else {
        const struct engine_request q = {
            .method = "POST", .path = path, .body = body.data, .len = body.len};
        c->made = true;
        (void)container_ask(c, CONTAINER_CREATE, &q, container_created);
    }
    buf_done(&body);
}

static void container_first(void *arg) {
    derive_image(arg);
}

int container_begin(void *arg, struct jail *jail, const struct jail_plan *plan, struct err *err) {
    struct maker *m = arg;
    const char *sick = engine_health(m->engine);
    if (*sick != '\0') {
        return err_set(err, ERR_SYSTEM, EIO, "%s", sick);
    }
    struct container *c = calloc(1, sizeof *c);
    if (c == NULL || !str_copy(c->ref, sizeof c->ref, plan->image) ||
        !str_copy(c->image_name, sizeof c->image_name, plan->image_name)) {
        free(c);
        return err_set(err, ERR_SYSTEM, ENOMEM, "making a container: out of memory");
    }
    c->maker = m;
    c->jail = jail;
    c->pidfd = c->control = c->report = c->report_src.fd = -1;
    c->syscalls = plan->syscalls;
    c->writable = plan->writable;
    c->limits = plan->limits;
    c->ceiling = plan->ceiling;
    (void)snprintf(c->name, sizeof c->name, "pinfold-%s-%d-%llu", m->cfg.owner, (int)getpid(),
                   (unsigned long long)++m->serial);
    /* Nobody may hear of the jail before it is known to whoever wants it. */
    if (loop_timer_at(m->cfg.loop, &c->timer, clock_mono_ns(), container_first, c, err) != 0) {
        free(c);
        return -1;
    }
    c->next = m->containers;
    m->containers = c;
    jail->made = c;
    return 0;
}

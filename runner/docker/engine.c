#include "engine.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "buf.h"
#include "clock.h"
#include "str.h"

#define ENGINE_TIMEOUT_MS 10000u
#define ENGINE_CONNECT_MS 2000u
#define ENGINE_REPLY_MAX (8u << 20)
#define ENGINE_LOOK_NS (2 * CLOCK_NS_PER_S)         /* between looks while all is well */
#define ENGINE_LOOK_SOON_NS (250 * CLOCK_NS_PER_MS) /* while it is not */
#define ENGINE_LOOK_MS 5000u                        /* that a look may take */
#define ENGINE_MEET_MS 10000u                       /* that the first one may take */
#define ENGINE_API_MAJOR 1
#define ENGINE_API_MINOR 41

struct engine_socket {
    struct engine_socket *next;
    struct engine *engine;
    struct loop_source src;
};

struct engine_call {
    struct engine_call *next;
    struct engine *engine;
    CURL *easy;
    struct curl_slist *headers;
    struct buf body;
    char what[160]; /* "POST /containers/create" */
    char error[CURL_ERROR_SIZE];
    engine_done *done;
    void *arg;
};

struct engine {
    struct engine_config cfg;
    CURLM *multi;
    struct loop_timer timer, look;
    struct engine_call *calls;
    struct engine_socket *sockets;
    bool up;
    uint64_t life;
    char prefix[16]; /* "/v1.41" */
    char version[64];
    bool podman;
    char health[256];
};

static void engine_look(void *arg);

static size_t engine_write(char *data, size_t size, size_t count, void *arg) {
    struct engine_call *c = arg;
    return buf_append(&c->body, data, size * count, NULL) == 0 ? size * count : 0;
}

static void engine_call_free(struct engine_call *c) {
    struct engine *e = c->engine;
    for (struct engine_call **at = &e->calls; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    (void)curl_multi_remove_handle(e->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    buf_done(&c->body);
    free(c);
}

static void engine_finish(struct engine_call *c, CURLcode code) {
    struct engine_reply reply = {.body = c->body.data ? c->body.data : "", .len = c->body.len};
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &reply.status);
    }
    if (reply.status == 0) {
        const char *why = code == CURLE_OPERATION_TIMEDOUT ? "no answer in time"
                          : c->error[0] != '\0'            ? c->error
                                                           : curl_easy_strerror(code);
        (void)err_set(&reply.err, ERR_SYSTEM, code == CURLE_OPERATION_TIMEDOUT ? ETIMEDOUT : EIO,
                      "the Docker engine: %s: %s", c->what, why);
    }
    c->done(c->arg, &reply);
    engine_call_free(c);
}

/* A callback may begin calls; none frees the engine. */
static void engine_collect(struct engine *e) {
    int left = 0;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(e->multi, &left)) != NULL) {
        char *call = NULL;
        CURLcode code = msg->data.result;
        if (msg->msg == CURLMSG_DONE &&
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call) == CURLE_OK) {
            engine_finish((struct engine_call *)(void *)call, code);
        }
    }
}

static void engine_socket_event(void *arg, uint32_t events) {
    struct engine_socket *s = arg;
    struct engine *e = s->engine;
    int running = 0;
    int mask = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
               (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR | CURL_CSELECT_IN : 0);
    (void)curl_multi_socket_action(e->multi, s->src.fd, mask, &running);
    engine_collect(e);
}

static void engine_timeout(void *arg) {
    struct engine *e = arg;
    int running = 0;
    (void)curl_multi_socket_action(e->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    engine_collect(e);
}

/* From within curl: nothing may be called but what arms a timer. */
static int engine_on_timer(CURLM *multi, long ms, void *arg) {
    struct engine *e = arg;
    (void)multi;
    if (ms < 0) {
        loop_timer_stop(e->cfg.loop, &e->timer);
        return 0;
    }
    return loop_timer_at(e->cfg.loop, &e->timer, clock_mono_ns() + (uint64_t)ms * CLOCK_NS_PER_MS,
                         engine_timeout, e, NULL) == 0
               ? 0
               : -1;
}

static void engine_socket_free(struct engine *e, struct engine_socket *s) {
    for (struct engine_socket **at = &e->sockets; *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    loop_del(e->cfg.loop, &s->src);
    free(s);
}

static int engine_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket) {
    struct engine *e = arg;
    struct engine_socket *s = socket;
    (void)easy;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL) {
            engine_socket_free(e, s);
        }
        return 0;
    }
    if (s != NULL) {
        return loop_mod(e->cfg.loop, &s->src, events, NULL);
    }
    s = calloc(1, sizeof *s);
    if (s == NULL) {
        return -1;
    }
    s->engine = e;
    s->src.fd = -1;
    if (loop_add(e->cfg.loop, &s->src, fd, events, engine_socket_event, s, NULL) != 0) {
        free(s);
        return -1;
    }
    s->next = e->sockets;
    e->sockets = s;
    return curl_multi_assign(e->multi, fd, s) == CURLM_OK ? 0 : -1;
}

static int engine_options(struct engine_call *c, const struct engine_request *q, const char *url) {
    CURL *h = c->easy;
    char type[96];
    (void)snprintf(type, sizeof type, "Content-Type: %s", q->type ? q->type : "application/json");
    c->headers = curl_slist_append(NULL, type);
    /* "Expect: 100-continue" would cost a round trip for every body. */
    struct curl_slist *more = c->headers ? curl_slist_append(c->headers, "Expect:") : NULL;
    if (more == NULL) {
        return -1;
    }
    CURLcode rc = CURLE_OK;
#define ENGINE_SET(option, value) rc = rc == CURLE_OK ? curl_easy_setopt(h, option, value) : rc
    ENGINE_SET(CURLOPT_UNIX_SOCKET_PATH, c->engine->cfg.socket);
    ENGINE_SET(CURLOPT_URL, url);
    ENGINE_SET(CURLOPT_PROTOCOLS_STR, "http");
    ENGINE_SET(CURLOPT_PROXY, "");
    ENGINE_SET(CURLOPT_FOLLOWLOCATION, 0L);
    ENGINE_SET(CURLOPT_NOSIGNAL, 1L);
    ENGINE_SET(CURLOPT_CUSTOMREQUEST, q->method);
    ENGINE_SET(CURLOPT_HTTPHEADER, c->headers);
    ENGINE_SET(CURLOPT_TIMEOUT_MS, (long)(q->timeout_ms ? q->timeout_ms : ENGINE_TIMEOUT_MS));
    ENGINE_SET(CURLOPT_CONNECTTIMEOUT_MS, (long)ENGINE_CONNECT_MS);
    ENGINE_SET(CURLOPT_WRITEFUNCTION, engine_write);
    ENGINE_SET(CURLOPT_WRITEDATA, c);
    ENGINE_SET(CURLOPT_ERRORBUFFER, c->error);
    ENGINE_SET(CURLOPT_PRIVATE, c);
    if (q->body != NULL) {
        ENGINE_SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->len);
        ENGINE_SET(CURLOPT_COPYPOSTFIELDS, q->body);
    } else if (strcmp(q->method, "POST") == 0) {
        ENGINE_SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
        ENGINE_SET(CURLOPT_COPYPOSTFIELDS, "");
    }
#undef ENGINE_SET
    return rc == CURLE_OK ? 0 : -1;
}

static int engine_begin(struct engine *e, const char *prefix, const struct engine_request *q,
                        engine_done *done, void *arg, struct err *err) {
    char url[1024];
    struct engine_call *c = calloc(1, sizeof *c);
    if (c == NULL || (c->easy = curl_easy_init()) == NULL) {
        free(c);
        return err_set(err, ERR_SYSTEM, ENOMEM, "asking the Docker engine: out of memory");
    }
    c->engine = e;
    c->done = done;
    c->arg = arg;
    buf_init(&c->body, ENGINE_REPLY_MAX);
    c->next = e->calls;
    e->calls = c;
    (void)snprintf(c->what, sizeof c->what, "%s %.120s", q->method, q->path);
    if (snprintf(url, sizeof url, "http://engine%s%s", prefix, q->path) >= (int)sizeof url ||
        engine_options(c, q, url) != 0 || curl_multi_add_handle(e->multi, c->easy) != CURLM_OK) {
        engine_call_free(c);
        return err_set(err, ERR_SYSTEM, EIO, "the Docker engine cannot be asked: %s %.200s",
                       q->method, q->path);
    }
    return 0;
}

int engine_ask(struct engine *e, const struct engine_request *q, engine_done *done, void *arg,
               struct err *err) {
    if (!e->up) {
        return err_set(err, ERR_STATE, EIO, "%s", e->health);
    }
    return engine_begin(e, e->prefix, q, done, arg, err);
}

/* ---- is it there, and what does it speak? ---- */

static void engine_look_later(struct engine *e) {
    (void)loop_timer_at(e->cfg.loop, &e->look,
                        clock_mono_ns() + (e->up ? ENGINE_LOOK_NS : ENGINE_LOOK_SOON_NS),
                        engine_look, e, NULL);
}

static void engine_down(struct engine *e, const char *why) {
    bool was = e->up;
    bool same = strcmp(e->health, why) == 0;
    e->up = false;
    (void)snprintf(e->health, sizeof e->health, "%s", why);
    if (was || !same) {
        e->cfg.changed(e->cfg.arg);
    }
}

static bool engine_parse_version(const char *text, int *minor) {
    int major = 0;
    return text != NULL && sscanf(text, "%d.%d", &major, minor) == 2 && major == ENGINE_API_MAJOR &&
           *minor >= 0 && *minor < 10000;
}

static void engine_met(struct engine *e, const json_t *root) {
    int newest = 0;
    int oldest = 0;
    char why[256];
    const char *api = json_string_value(json_object_get(root, "ApiVersion"));
    const char *least = json_string_value(json_object_get(root, "MinAPIVersion"));
    const char *own = json_string_value(json_object_get(root, "Version"));
    if (!engine_parse_version(api, &newest)) {
        engine_down(e, "the Docker engine: what answers at its socket is no engine");
        return;
    }
    if (!engine_parse_version(least, &oldest) || oldest < ENGINE_API_MINOR) {
        oldest = ENGINE_API_MINOR;
    }
    if (newest < ENGINE_API_MINOR || oldest > newest) {
        (void)snprintf(
            why, sizeof why,
            "the Docker engine speaks version %.16s of its API; %d.%d or newer is needed", api,
            ENGINE_API_MAJOR, ENGINE_API_MINOR);
        engine_down(e, why);
        return;
    }
    (void)snprintf(e->prefix, sizeof e->prefix, "/v%d.%d", ENGINE_API_MAJOR, oldest);
    const json_t *first = json_array_get(json_object_get(root, "Components"), 0);
    const char *name = json_string_value(json_object_get(first, "Name"));
    e->podman = name != NULL && strcmp(name, "Podman Engine") == 0;
    (void)snprintf(e->version, sizeof e->version, "%.40s (API %d.%d)", own ? own : "?",
                   ENGINE_API_MAJOR, oldest);
    if (!e->up) {
        e->up = true;
        e->life++;
        e->health[0] = '\0';
        e->cfg.changed(e->cfg.arg);
    }
}

static void engine_seen(void *arg, const struct engine_reply *reply) {
    struct engine *e = arg;
    if (reply->status == 200 && e->up) {
        /* It is still there. */
    } else if (reply->status == 200) {
        json_t *root = json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL);
        engine_met(e, root);
        json_decref(root);
    } else if (reply->status != 0) {
        engine_down(e, "the Docker engine: it does not tell its version");
    } else {
        engine_down(e, reply->err.text);
    }
    engine_look_later(e);
}

static void engine_look(void *arg) {
    struct engine *e = arg;
    struct err err;
    /* Podman starts two programs to tell its version: it is asked once. */
    const struct engine_request q = {.method = "GET",
                                     .path = e->up ? "/_ping" : "/version",
                                     .timeout_ms = e->up ? ENGINE_LOOK_MS : ENGINE_MEET_MS};
    if (engine_begin(e, "", &q, engine_seen, e, &err) != 0) {
        engine_down(e, err.text);
        engine_look_later(e);
    }
}

const char *engine_health(const struct engine *e) {
    return e->health;
}

const char *engine_prefix(const struct engine *e) {
    return e->prefix;
}

const char *engine_version(const struct engine *e) {
    return e->version;
}

bool engine_is_podman(const struct engine *e) {
    return e->podman;
}

uint64_t engine_life(const struct engine *e) {
    return e->life;
}

int engine_error(const struct engine_reply *reply, const char *what, struct err *err) {
    if (reply->status == 0) {
        if (err != NULL) {
            *err = reply->err;
        }
        return -1;
    }
    char shown[300];
    json_t *root = json_loadb(reply->body, reply->len, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "message"));
    text = text != NULL ? text : "no reason was given";
    str_escape(shown, sizeof shown, text, strlen(text));
    json_decref(root);
    return err_set(err, ERR_SYSTEM, reply->status == 404 ? ENOENT : EIO,
                   "the Docker engine: %s: HTTP %ld, %s", what, reply->status, shown);
}

struct engine *engine_new(const struct engine_config *cfg, struct err *err) {
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        (e->multi = curl_multi_init()) == NULL) {
        free(e);
        (void)err_set(err, ERR_SYSTEM, ENOMEM, "preparing to talk to the Docker engine");
        return NULL;
    }
    e->cfg = *cfg;
    (void)snprintf(e->health, sizeof e->health, "the Docker engine has not answered yet");
    (void)curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, engine_on_socket);
    (void)curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
    (void)curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, engine_on_timer);
    (void)curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
    (void)curl_multi_setopt(e->multi, CURLMOPT_MAXCONNECTS, 8L);
    if (loop_timer_at(cfg->loop, &e->look, clock_mono_ns(), engine_look, e, err) != 0) {
        engine_free(e);
        return NULL;
    }
    return e;
}

void engine_free(struct engine *e) {
    if (e == NULL) {
        return;
    }
    while (e->calls != NULL) {
        engine_call_free(e->calls);
    }
    (void)curl_multi_cleanup(e->multi);
    while (e->sockets != NULL) {
        engine_socket_free(e, e->sockets);
    }
    loop_timer_stop(e->cfg.loop, &e->timer);
    loop_timer_stop(e->cfg.loop, &e->look);
    free(e);
}

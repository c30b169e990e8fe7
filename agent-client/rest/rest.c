#include "rest.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_version.h"
#include "clock.h"
#include "rest_trust.h"
#include "traceparent.h"

#define REST_CONNECT_MS 5000L
#define REST_KEEPIDLE_S 15L
#define REST_KEEPINTVL_S 5L
#define REST_SILENCE_MS 30000
#define REST_ERROR_MAX 65536u

enum rest_place { REST_MAIN, REST_BESIDE, REST_LINES };

/* One request at a time, on a connection of its own. */
struct rest_line {
    struct rest *rest;
    CURL *easy;
    char reason[CURL_ERROR_SIZE];
    struct buf refusal; /* the body of an error answer */

    struct rest_call *call; /* the one in progress; NULL = none */
    bool abandoned;
    struct err *err; /* why it was abandoned */

    /* REST_BESIDE only. */
    struct err own;
    rest_beside_fn *done;
    void *arg;
};

struct rest {
    const struct target *target;
    const struct rest_hooks *hooks;
    CURLM *multi;
    struct curl_slist *json_headers, *raw_headers;
    struct rest_line line[REST_LINES];
};

static int rest_on_socket(void *arg, curl_socket_t fd, curlsocktype purpose) {
    int silence = REST_SILENCE_MS;

    (void)arg;
    (void)purpose;
    /* Unacknowledged data must not keep a dead connection for the kernel's quarter of an hour.
     * Fails harmlessly where the socket is not TCP. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
    return CURL_SOCKOPT_OK;
}

static size_t rest_on_data(char *data, size_t size, size_t count, void *arg) {
    struct rest_line *l = arg;
    struct rest_call *call = l->call;
    size_t len = size * count;
    long status = 0;

    curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) {
        /* An error body that is longer is cut: then it is not JSON and the status speaks. */
        size_t room = l->refusal.max - l->refusal.len;

        (void)buf_append(&l->refusal, data, len < room ? len : room, NULL);
        return len;
    }
    if (call->on_data != NULL && call->on_data(call->arg, data, len, l->err) < 0) {
        l->abandoned = true;
        return len > 0 ? 0 : 1;
    }
    return len;
}

static size_t rest_on_header(char *line, size_t size, size_t count, void *arg) {
    struct rest_line *l = arg;
    long status = 0;

    /* The empty line behind the headers. */
    if (size * count <= 2 && l->call->on_answer != NULL) {
        curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
        if (status >= 200 && status < 400)
            l->call->on_answer(l->call->arg);
    }
    (void)line;
    return size * count;
}

static size_t rest_on_read(char *data, size_t size, size_t count, void *arg) {
    struct rest_line *l = arg;
    ssize_t got = l->call->on_read(l->call->arg, data, size * count, l->err);

    if (got >= 0)
        return (size_t)got;
    l->abandoned = true;
    return CURL_READFUNC_ABORT;
}

static bool rest_add_header(struct curl_slist **list, const char *text) {
    struct curl_slist *longer = curl_slist_append(*list, text);

    if (longer == NULL)
        return false;
    *list = longer;
    return true;
}

/* What we are called from may be traced (W3C Trace Context): an agent inside a jail has TRACEPARENT
 * from the server. Only what is well formed is passed on: nothing else gets into a header. */
static bool rest_add_trace(struct curl_slist **list) {
    const char *parent = getenv("TRACEPARENT"), *state = getenv("TRACESTATE");
    char line[TRACEPARENT_STATE_MAX + 32];
    struct traceparent t;

    if (parent == NULL || !traceparent_parse(parent, &t))
        return true;
    memcpy(line, "traceparent: ", 13);
    traceparent_write(&t, line + 13);
    if (!rest_add_header(list, line))
        return false;
    if (state == NULL || !traceparent_state_ok(state))
        return true;
    snprintf(line, sizeof(line), "tracestate: %s", state);
    return rest_add_header(list, line);
}

static bool rest_make_headers(const struct target *target, const char *type,
                              struct curl_slist **list) {
    char line[TARGET_TOKEN_MAX + 32];
    bool ok = rest_add_header(list, type) &&
              rest_add_header(list, "Accept: application/json, application/x-ndjson, */*") &&
              /* Waiting for "100 Continue" would cost a second with servers that do not send it. */
              rest_add_header(list, "Expect:");

    if (ok && target->token[0] != '\0') {
        snprintf(line, sizeof(line), "Authorization: Bearer %s", target->token);
        ok = rest_add_header(list, line);
        explicit_bzero(line, sizeof(line));
    }
    return ok && rest_add_trace(list);
}

static bool rest_line_init(struct rest *h, enum rest_place place) {
    struct rest_line *l = &h->line[place];
    CURL *e = curl_easy_init();

    if (e == NULL)
        return false;
    l->rest = h;
    l->easy = e;
    buf_init(&l->refusal, REST_ERROR_MAX);
    curl_easy_setopt(e, CURLOPT_PRIVATE, l);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "pinfold/" CLIENT_VERSION);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, REST_CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, REST_KEEPIDLE_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, REST_KEEPINTVL_S);
    curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, rest_on_socket);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 131072L);
    curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 524288L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, l->reason);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, rest_on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, rest_on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, l);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, rest_on_read);
    curl_easy_setopt(e, CURLOPT_READDATA, l);
    rest_trust_set_up(e, h->target);
    /* A proxy for the outside world must not see what is meant for this machine. */
    if (h->target->loopback)
        curl_easy_setopt(e, CURLOPT_PROXY, "");
    return true;
}

struct rest *rest_new(const struct target *target, const struct rest_hooks *hooks,
                      struct err *err) {
    struct rest *h;

    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        err_set(err, ERR_SYSTEM, 0, "libcurl could not be started");
        return NULL;
    }
    h = calloc(1, sizeof(*h));
    if (h == NULL) {
        curl_global_cleanup();
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a connection");
        return NULL;
    }
    h->target = target;
    h->hooks = hooks;
    h->multi = curl_multi_init();
    if (h->multi == NULL || !rest_line_init(h, REST_MAIN) || !rest_line_init(h, REST_BESIDE) ||
        !rest_make_headers(target, "Content-Type: application/json", &h->json_headers) ||
        !rest_make_headers(target, "Content-Type: application/octet-stream", &h->raw_headers)) {
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a connection");
        rest_free(h);
        return NULL;
    }
    return h;
}

void rest_free(struct rest *h) {
    if (h == NULL)
        return;
    for (int i = 0; i < REST_LINES; i++) {
        struct rest_line *l = &h->line[i];

        if (l->call != NULL)
            curl_multi_remove_handle(h->multi, l->easy);
        if (l->easy != NULL)
            curl_easy_cleanup(l->easy);
        buf_done(&l->refusal);
    }
    if (h->multi != NULL)
        curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->json_headers);
    curl_slist_free_all(h->raw_headers);
    free(h);
    curl_global_cleanup();
}

static void rest_set_body(CURL *e, const struct rest_call *call) {
    /* In this order: setting POSTFIELDS makes it a POST. */
    curl_easy_setopt(e, CURLOPT_POSTFIELDS, NULL);
    curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)-1);
    curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(e, CURLOPT_NOBODY, strcmp(call->method, "HEAD") == 0 ? 1L : 0L);
    if (call->on_read != NULL) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->read_len);
    } else if (call->body != NULL) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, (const char *)call->body);
    }
}

/* Begins a request on a line that is free. */
static int rest_start(struct rest_line *l, struct rest_call *call, struct err *err) {
    struct rest *h = l->rest;
    char url[TARGET_URL_MAX + 16384];
    int len = snprintf(url, sizeof(url), "%s%s", h->target->url, call->path);
    CURLcode rc;

    call->status = 0;
    call->error = (struct api_error){0};
    call->anonymous = h->target->token[0] == '\0';
    if (len < 0 || (size_t)len >= sizeof(url))
        return err_set(err, ERR_INVALID, 0, "the request path is too long");
    rc = curl_easy_setopt(l->easy, CURLOPT_URL, url);
    rest_set_body(l->easy, call);
    curl_easy_setopt(l->easy, CURLOPT_HTTPHEADER, call->raw ? h->raw_headers : h->json_headers);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(l->easy, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(l->easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    l->err = err;
    l->abandoned = false;
    l->reason[0] = '\0';
    buf_clear(&l->refusal);
    if (rc != CURLE_OK || curl_multi_add_handle(h->multi, l->easy) != CURLM_OK)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a request");
    l->call = call;
    return 0;
}

static void rest_read_refusal(const struct rest_line *l, struct rest_call *call) {
    json_t *body =
        json_loadb(l->refusal.data != NULL ? l->refusal.data : "", l->refusal.len, 0, NULL);

    (void)api_error_decode(body, call->status, &call->error);
    json_decref(body);
}

static bool rest_never_connected(CURLcode rc) {
    return rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST ||
           rc == CURLE_COULDNT_RESOLVE_PROXY || rc == CURLE_URL_MALFORMAT;
}

static int rest_fail(struct rest_line *l, CURLcode rc, struct err *err) {
    const char *why = l->reason[0] != '\0' ? l->reason : curl_easy_strerror(rc);
    const char *url = l->rest->target->url;
    curl_off_t connected = 0;

    if (rest_trust_failed(l->easy, rc, l->rest->target, why, err) < 0)
        return -1;
    curl_easy_getinfo(l->easy, CURLINFO_CONNECT_TIME_T, &connected);
    if (rest_never_connected(rc) || (rc == CURLE_OPERATION_TIMEDOUT && connected == 0))
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "the server at %s cannot be reached: %s; PINFOLD_URL says where it is", url,
                       why);
    return err_set(err, ERR_SYSTEM, ECONNRESET, "the connection to %s was lost: %s", url, why);
}

/* The request of a line is over, with curl's verdict. */
static int rest_finish(struct rest_line *l, CURLcode rc) {
    struct rest_call *call = l->call;
    long status = 0;

    curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(l->rest->multi, l->easy);
    l->call = NULL;
    call->status = (int)status;
    if (l->abandoned)
        return -1;
    /* A server that refuses a body early closes the connection while we still send: its answer, if
     * it came, says more than the broken pipe. */
    if (rc != CURLE_OK && !(status >= 400 && rc == CURLE_SEND_ERROR))
        return rest_fail(l, rc, l->err);
    if (status >= 400)
        rest_read_refusal(l, call);
    else if (status < 200 || status >= 300)
        return err_set(l->err, ERR_PROTOCOL, 0,
                       "%s answered with HTTP status %ld, as no Pinfold does", l->rest->target->url,
                       status);
    return 0;
}

/* Lets curl work. True when something was finished: *main_rc is its verdict if that was REST_MAIN.
 */
static bool rest_advance(struct rest *h, CURLcode *main_rc) {
    int running = 0, left;
    bool any = false;
    CURLMsg *msg;

    if (curl_multi_perform(h->multi, &running) != CURLM_OK) {
        *main_rc = CURLE_OUT_OF_MEMORY;
        return true;
    }
    while ((msg = curl_multi_info_read(h->multi, &left)) != NULL) {
        struct rest_line *l = NULL;
        CURLcode rc = msg->data.result;

        if (msg->msg != CURLMSG_DONE ||
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&l) != CURLE_OK)
            continue;
        any = true;
        if (l == &h->line[REST_MAIN]) {
            *main_rc = rc;
        } else {
            int over = rest_finish(l, rc);

            l->done(l->arg, over, &l->own);
        }
    }
    return any;
}

/* One wait for the connections, the hooks' descriptors, or the time. *woken: a descriptor of the
 * hooks was ready. */
static int rest_wait(struct rest *h, int ms, bool *woken, struct err *err) {
    struct pollfd fds[REST_WAIT_MAX];
    struct curl_waitfd extra[REST_WAIT_MAX];
    size_t count = 0;

    if (h->hooks != NULL) {
        if (h->hooks->ready(h->hooks->arg, err) < 0)
            return -1;
        count = h->hooks->want(h->hooks->arg, fds);
    }
    for (size_t i = 0; i < count; i++) {
        extra[i].fd = fds[i].fd;
        extra[i].events = (short)(((fds[i].events & POLLIN) != 0 ? CURL_WAIT_POLLIN : 0) |
                                  ((fds[i].events & POLLOUT) != 0 ? CURL_WAIT_POLLOUT : 0));
        extra[i].revents = 0;
    }
    curl_multi_poll(h->multi, extra, (unsigned)count, ms, NULL);
    *woken = false;
    for (size_t i = 0; i < count; i++)
        *woken |= extra[i].revents != 0;
    return 0;
}

int rest_perform(struct rest *h, struct rest_call *call, struct err *err) {
    struct rest_line *l = &h->line[REST_MAIN];
    CURLcode rc = CURL_LAST;
    bool woken;

    if (rest_start(l, call, err) < 0)
        return -1;
    for (;;) {
        (void)rest_advance(h, &rc);
        if (rc != CURL_LAST)
            return rest_finish(l, rc);
        if (rest_wait(h, 1000, &woken, err) < 0) {
            l->abandoned = true;
            return rest_finish(l, CURLE_ABORTED_BY_CALLBACK);
        }
    }
}

const char *rest_header(struct rest *h, const char *name) {
    struct curl_header *found = NULL;

    if (curl_easy_header(h->line[REST_MAIN].easy, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK)
        return NULL;
    return found->value;
}

int rest_beside(struct rest *h, struct rest_call *call, rest_beside_fn *done, void *arg,
                struct err *err) {
    struct rest_line *l = &h->line[REST_BESIDE];

    if (l->call != NULL)
        return err_set(err, ERR_STATE, 0, "a request is already on its way");
    err_clear(&l->own);
    l->done = done;
    l->arg = arg;
    if (rest_start(l, call, &l->own) < 0) {
        if (err != NULL)
            *err = l->own;
        return -1;
    }
    return 0;
}

bool rest_beside_busy(const struct rest *h) {
    return h->line[REST_BESIDE].call != NULL;
}

int rest_idle(struct rest *h, int ms, struct err *err) {
    uint64_t until = clock_mono_ms() + (uint64_t)ms;
    CURLcode rc = CURL_LAST;
    bool woken = false;

    while (!woken && !rest_advance(h, &rc)) {
        uint64_t now = clock_mono_ms();

        if (now >= until)
            return 0;
        if (rest_wait(h, until - now < 1000 ? (int)(until - now) : 1000, &woken, err) < 0)
            return -1;
    }
    return 0;
}

int rest_refusal(const struct rest_call *call, struct err *err) {
    const struct api_error *e = &call->error;

    if (call->status == 401)
        return err_set(err, ERR_INVALID, call->status,
                       call->anonymous
                           ? "PINFOLD_TOKEN is not set; the server's administrator has a token "
                             "for you"
                           : "the server does not know the token in PINFOLD_TOKEN, or no longer "
                             "(it may have expired); its administrator has one for you");
    if (e->field[0] != '\0')
        return err_set(err, ERR_INVALID, call->status, "%s (field %s)", e->message, e->field);
    return err_set(err, ERR_INVALID, call->status, "%s", e->message);
}

int rest_gather(void *arg, const char *data, size_t len, struct err *err) {
    return buf_append(arg, data, len, err);
}

static json_t *rest_parse(struct rest *h, const struct buf *body, const char *path,
                          struct err *err) {
    json_t *object;

    if (body->len == 0)
        return json_null();
    object = json_loadb(body->data, body->len, JSON_ALLOW_NUL, NULL);
    if (object == NULL)
        err_set(err, ERR_PROTOCOL, 0, "%s answered %s with what is not JSON", h->target->url, path);
    return object;
}

struct json_t *rest_json(struct rest *h, const char *method, const char *path,
                         const struct json_t *body, size_t max, struct err *err) {
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct buf answer;
    struct rest_call call = {.method = method,
                             .path = path,
                             .body = text,
                             .body_len = text != NULL ? strlen(text) : 0,
                             .on_data = rest_gather,
                             .arg = &answer};
    json_t *object = NULL;

    if (body != NULL && text == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the request");
        return NULL;
    }
    buf_init(&answer, max);
    if (rest_perform(h, &call, err) == 0) {
        if (call.status >= 400)
            rest_refusal(&call, err);
        else
            object = rest_parse(h, &answer, path, err);
    }
    buf_done(&answer);
    free(text);
    return object;
}

struct json_t *rest_get_json(struct rest *h, const char *path, size_t max, struct err *err) {
    return rest_json(h, "GET", path, NULL, max, err);
}

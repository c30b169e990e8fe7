#include "rest.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "client_version.h"

#define REST_CONNECT_MS 5000L
#define REST_KEEPIDLE_S 15L
#define REST_KEEPINTVL_S 5L
#define REST_SILENCE_MS 30000
#define REST_ERROR_MAX 65536u

struct rest {
    const struct target *target;
    const struct rest_hooks *hooks;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    char reason[CURL_ERROR_SIZE];

    struct rest_call *call; /* the one in progress */
    struct err *err;
    bool abandoned;
    struct buf refusal; /* the body of an error answer */
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
    struct rest *h = arg;
    struct rest_call *call = h->call;
    size_t len = size * count;
    long status = 0;

    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) {
        /* An error body that is longer is cut: then it is not JSON and the status speaks. */
        size_t room = h->refusal.max - h->refusal.len;

        (void)buf_append(&h->refusal, data, len < room ? len : room, NULL);
        return len;
    }
    if (call->on_data != NULL && call->on_data(call->arg, data, len, h->err) < 0) {
        h->abandoned = true;
        return len > 0 ? 0 : 1;
    }
    return len;
}

static bool rest_add_header(struct rest *h, const char *text) {
    struct curl_slist *longer = curl_slist_append(h->headers, text);

    if (longer == NULL)
        return false;
    h->headers = longer;
    return true;
}

static bool rest_make_headers(struct rest *h) {
    char line[TARGET_TOKEN_MAX + 32];
    bool ok = rest_add_header(h, "Content-Type: application/json") &&
              rest_add_header(h, "Accept: application/json") &&
              /* Waiting for "100 Continue" would cost a second with servers that do not send it. */
              rest_add_header(h, "Expect:");

    if (ok && h->target->token[0] != '\0') {
        snprintf(line, sizeof(line), "Authorization: Bearer %s", h->target->token);
        ok = rest_add_header(h, line);
        explicit_bzero(line, sizeof(line));
    }
    return ok;
}

static void rest_set_options(struct rest *h) {
    CURL *e = h->easy;

    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "pinfold/" CLIENT_VERSION);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, REST_CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, REST_KEEPIDLE_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, REST_KEEPINTVL_S);
    curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, rest_on_socket);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 131072L);
    curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 524288L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, h->reason);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, rest_on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, h);
    /* A proxy for the outside world must not see what is meant for this machine. */
    if (h->target->loopback)
        curl_easy_setopt(e, CURLOPT_PROXY, "");
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
    buf_init(&h->refusal, REST_ERROR_MAX);
    h->multi = curl_multi_init();
    h->easy = curl_easy_init();
    if (h->multi == NULL || h->easy == NULL || !rest_make_headers(h)) {
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a connection");
        rest_free(h);
        return NULL;
    }
    rest_set_options(h);
    return h;
}

void rest_free(struct rest *h) {
    if (h == NULL)
        return;
    if (h->easy != NULL)
        curl_easy_cleanup(h->easy);
    if (h->multi != NULL)
        curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    buf_done(&h->refusal);
    free(h);
    curl_global_cleanup();
}

static int rest_set_call(struct rest *h, const struct rest_call *call, struct err *err) {
    char url[TARGET_URL_MAX + 8192];
    int len = snprintf(url, sizeof(url), "%s%s", h->target->url, call->path);
    CURLcode rc;

    if (len < 0 || (size_t)len >= sizeof(url))
        return err_set(err, ERR_INVALID, 0, "the request path is too long");
    rc = curl_easy_setopt(h->easy, CURLOPT_URL, url);
    /* In this order: setting POSTFIELDS makes it a POST. */
    curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, NULL);
    curl_easy_setopt(h->easy, CURLOPT_HTTPGET, 1L);
    if (call->body != NULL) {
        curl_easy_setopt(h->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, (const char *)call->body);
    }
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(h->easy, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    if (rc != CURLE_OK)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a request");
    return 0;
}

/* One wait for the connection, the hooks' descriptors, or a second. */
static int rest_wait(struct rest *h, struct err *err) {
    struct pollfd fds[REST_WAIT_MAX];
    struct curl_waitfd extra[REST_WAIT_MAX];
    size_t count = h->hooks != NULL ? h->hooks->want(h->hooks->arg, fds) : 0;

    for (size_t i = 0; i < count; i++) {
        extra[i].fd = fds[i].fd;
        extra[i].events = (short)(((fds[i].events & POLLIN) != 0 ? CURL_WAIT_POLLIN : 0) |
                                  ((fds[i].events & POLLOUT) != 0 ? CURL_WAIT_POLLOUT : 0));
        extra[i].revents = 0;
    }
    curl_multi_poll(h->multi, extra, (unsigned)count, 1000, NULL);
    if (h->hooks != NULL && h->hooks->ready(h->hooks->arg, err) < 0) {
        h->abandoned = true;
        return -1;
    }
    return 0;
}

/* Runs the request to its end. -> curl's verdict; CURLE_ABORTED_BY_CALLBACK when abandoned. */
static CURLcode rest_drive(struct rest *h, struct err *err) {
    int running = 1;

    while (running > 0) {
        CURLMcode rc = curl_multi_perform(h->multi, &running);
        CURLMsg *msg;
        int left;

        if (rc != CURLM_OK)
            return CURLE_OUT_OF_MEMORY;
        while ((msg = curl_multi_info_read(h->multi, &left)) != NULL)
            if (msg->msg == CURLMSG_DONE)
                return msg->data.result;
        if (running > 0 && rest_wait(h, err) < 0)
            return CURLE_ABORTED_BY_CALLBACK;
    }
    return CURLE_GOT_NOTHING;
}

static void rest_read_refusal(struct rest *h, struct rest_call *call) {
    json_t *body =
        json_loadb(h->refusal.data != NULL ? h->refusal.data : "", h->refusal.len, 0, NULL);

    (void)api_error_decode(body, call->status, &call->error);
    json_decref(body);
}

static bool rest_never_connected(CURLcode rc) {
    return rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST ||
           rc == CURLE_COULDNT_RESOLVE_PROXY || rc == CURLE_SSL_CONNECT_ERROR ||
           rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_URL_MALFORMAT;
}

static int rest_fail(struct rest *h, CURLcode rc, struct err *err) {
    const char *why = h->reason[0] != '\0' ? h->reason : curl_easy_strerror(rc);
    curl_off_t connected = 0;

    curl_easy_getinfo(h->easy, CURLINFO_CONNECT_TIME_T, &connected);
    if (rest_never_connected(rc) || (rc == CURLE_OPERATION_TIMEDOUT && connected == 0))
        return err_set(err, ERR_SYSTEM, ECONNREFUSED, "the server at %s cannot be reached: %s",
                       h->target->url, why);
    return err_set(err, ERR_SYSTEM, ECONNRESET, "the connection to %s was lost: %s", h->target->url,
                   why);
}

int rest_perform(struct rest *h, struct rest_call *call, struct err *err) {
    CURLcode rc;
    long status = 0;

    call->status = 0;
    call->error = (struct api_error){0};
    if (rest_set_call(h, call, err) < 0)
        return -1;
    h->call = call;
    h->err = err;
    h->abandoned = false;
    h->reason[0] = '\0';
    buf_clear(&h->refusal);
    if (curl_multi_add_handle(h->multi, h->easy) != CURLM_OK)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a request");
    rc = rest_drive(h, err);
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(h->multi, h->easy);
    call->status = (int)status;
    if (h->abandoned)
        return -1;
    /* A server that refuses a body early closes the connection while we still send: its answer, if
     * it came, says more than the broken pipe. */
    if (rc != CURLE_OK && !(status >= 400 && rc == CURLE_SEND_ERROR))
        return rest_fail(h, rc, err);
    if (status >= 400)
        rest_read_refusal(h, call);
    else if (status < 200 || status >= 300)
        return err_set(err, ERR_PROTOCOL, 0, "%s answered with HTTP status %ld, as no Pinfold does",
                       h->target->url, status);
    return 0;
}

int rest_refusal(const struct rest_call *call, struct err *err) {
    const struct api_error *e = &call->error;

    if (call->status == 401)
        return err_set(err, ERR_INVALID, call->status,
                       "the server does not know the token in PINFOLD_TOKEN, or that is not set; "
                       "its administrator has one for you");
    if (e->field[0] != '\0')
        return err_set(err, ERR_INVALID, call->status, "%s (field %s)", e->message, e->field);
    return err_set(err, ERR_INVALID, call->status, "%s", e->message);
}

static int rest_gather(void *arg, const char *data, size_t len, struct err *err) {
    return buf_append(arg, data, len, err);
}

struct json_t *rest_get_json(struct rest *h, const char *path, size_t max, struct err *err) {
    struct buf body;
    struct rest_call call = {.method = "GET", .path = path, .on_data = rest_gather, .arg = &body};
    json_t *object = NULL;

    buf_init(&body, max);
    if (rest_perform(h, &call, err) == 0) {
        if (call.status >= 400)
            rest_refusal(&call, err);
        else if ((object = json_loadb(body.data != NULL ? body.data : "", body.len, JSON_ALLOW_NUL,
                                      NULL)) == NULL)
            err_set(err, ERR_PROTOCOL, 0, "%s answered %s with what is not JSON", h->target->url,
                    path);
    }
    buf_done(&body);
    return object;
}

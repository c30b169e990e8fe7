#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "model_internal.h"
#include "model_sse.h"

#define MODEL_HTTP_CONNECT_MS 10000L
#define MODEL_HTTP_ERROR_MAX ((size_t)64 * 1024)
#define MODEL_HTTP_TURN_MS 500

/* One attempt that is under way. */
struct model_http {
    struct model *m;
    const struct model_wire *wire;
    struct model_answer *answer;
    struct model_attempt *attempt;
    struct model_sse sse;
    struct err *err;
    bool streamed, broken, forbidden;
    size_t seen; /* bytes of the answer */
    uint64_t last_ms;
};

/* Local only: the last line, below libcurl's names, proxies and redirects. */
static bool model_http_loopback(const struct sockaddr *sa) {
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;
        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)sa;
        if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr))
            return in->sin6_addr.s6_addr[12] == 127;
        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return false;
}

static curl_socket_t model_http_socket(void *arg, curlsocktype purpose,
                                       struct curl_sockaddr *address) {
    struct model_http *h = arg;
    (void)purpose;
    if (h->m->local_only && !model_http_loopback(&address->addr)) {
        h->forbidden = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int model_http_event(void *arg, const char *event, const char *data, size_t len,
                            struct err *err) {
    struct model_http *h = arg;
    struct model_answer *a = h->answer;
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
        return h->wire->event(a, event, NULL, err);
    json_t *object = json_loadb(data, len, 0, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return err_set(err, ERR_PROTOCOL, 0, "an event of the model's answer is no JSON object");
    }
    int rc = 0;
    /* After HTTP 200 an error can only come like this. */
    if (json_object_get(object, "error") != NULL &&
        !json_is_null(json_object_get(object, "error"))) {
        struct model_reply scratch = {0};
        struct err why;
        model_error_read(data, len, 0, h->m->key, &scratch, &why);
        a->failed = scratch.failure;
        snprintf(a->trouble, sizeof(a->trouble), "%.299s", why.text);
    } else {
        rc = h->wire->event(a, event, object, err);
    }
    json_decref(object);
    return rc;
}

static size_t model_http_data(char *data, size_t size, size_t count, void *arg) {
    struct model_http *h = arg;
    size_t len = size * count;
    long status = 0;
    h->last_ms = clock_mono_ms();
    h->attempt->connected = true;
    h->seen += len;
    curl_easy_getinfo(h->m->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300) {
        size_t room = MODEL_HTTP_ERROR_MAX > h->attempt->body.len
                          ? MODEL_HTTP_ERROR_MAX - h->attempt->body.len
                          : 0;
        (void)buf_append(&h->attempt->body, data, len < room ? len : room, NULL);
        return len;
    }
    int rc = h->seen > MODEL_STREAM_MAX
                 ? err_set(h->err, ERR_LIMIT, 0, "the model's answer is too long")
             : h->streamed ? model_sse_feed(&h->sse, data, len, h->err)
                           : buf_append(&h->attempt->body, data, len, h->err);
    if (rc == 0)
        return len;
    h->broken = true;
    return len > 0 ? 0 : 1;
}

/* "Name: value" of an answer's header; NULL when it is another. */
static const char *model_http_value(const char *line, size_t len, const char *name, char *dst,
                                    size_t size) {
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    const char *value = line + n + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    snprintf(dst, size, "%.*s", (int)(end - value), value);
    return dst;
}

/* Seconds, or a date (RFC 9110). */
static int64_t model_http_retry_after(const char *text) {
    char *end;
    double seconds = strtod(text, &end);
    if (end != text && *end == '\0')
        return seconds >= 0 && seconds < 86400 ? (int64_t)(seconds * 1000) : -1;
    time_t when = curl_getdate(text, NULL);
    int64_t ms = when == (time_t)-1 ? -1 : ((int64_t)when - (int64_t)time(NULL)) * 1000;
    return when != (time_t)-1 && ms < 0 ? 0 : ms;
}

static size_t model_http_header(char *line, size_t size, size_t count, void *arg) {
    struct model_http *h = arg;
    struct model_attempt *a = h->attempt;
    char value[200];
    size_t len = size * count;
    h->last_ms = clock_mono_ms();
    if (model_http_value(line, len, "content-type", value, sizeof(value)) != NULL)
        h->streamed = strncasecmp(value, "text/event-stream", 17) == 0;
    else if (model_http_value(line, len, "retry-after-ms", value, sizeof(value)) != NULL)
        a->wait_ms = (int64_t)strtoll(value, NULL, 10);
    else if (model_http_value(line, len, "retry-after", value, sizeof(value)) != NULL &&
             a->wait_ms < 0)
        a->wait_ms = model_http_retry_after(value);
    else if (model_http_value(line, len, "x-should-retry", value, sizeof(value)) != NULL)
        a->should_retry = strcasecmp(value, "true") == 0;
    return len;
}

int model_http_set_up(struct model *m, struct err *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, ERR_SYSTEM, 0, "libcurl could not be started");
    m->multi = curl_multi_init();
    m->easy = curl_easy_init();
    if (m->multi == NULL || m->easy == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for a connection");
    CURL *e = m->easy;
    curl_easy_setopt(e, CURLOPT_URL, m->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "pinfold");
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, MODEL_HTTP_CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, model_http_socket);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, model_http_data);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, model_http_header);
    if (m->ca[0] != '\0')
        curl_easy_setopt(e, CURLOPT_CAINFO, m->ca);
    if (m->local_only) {
        curl_easy_setopt(e, CURLOPT_PROXY, "");
        curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    }
    return 0;
}

static bool model_http_cancelled(const struct model *m) {
    struct pollfd p = {.fd = m->cancel_fd, .events = POLLIN};
    return m->cancel_fd >= 0 && poll(&p, 1, 0) > 0;
}

bool model_http_wait(struct model *m, uint64_t ms) {
    struct pollfd p = {.fd = m->cancel_fd, .events = POLLIN};
    uint64_t end = clock_mono_ms() + ms;
    for (uint64_t now = clock_mono_ms(); now < end; now = clock_mono_ms())
        if (poll(&p, m->cancel_fd >= 0 ? 1 : 0, (int)(end - now)) > 0)
            return false;
    return !model_http_cancelled(m);
}

/* Until the transfer is over. 0, or -1 with *err and the kind of failure. */
static int model_http_drive(struct model_http *h, CURLcode *code, struct model_reply *reply) {
    struct model *m = h->m;
    uint64_t begun = clock_mono_ms();
    int running = 1, left;
    h->last_ms = begun;
    while (running > 0) {
        struct curl_waitfd extra = {.fd = m->cancel_fd, .events = CURL_WAIT_POLLIN};
        if (curl_multi_perform(m->multi, &running) != CURLM_OK)
            return err_set(h->err, ERR_SYSTEM, 0, "libcurl failed while asking the model");
        if (running == 0)
            break;
        curl_multi_poll(m->multi, &extra, m->cancel_fd >= 0 ? 1 : 0, MODEL_HTTP_TURN_MS, NULL);
        uint64_t now = clock_mono_ms();
        if (model_http_cancelled(m)) {
            reply->failure = MODEL_CANCELLED;
            return err_set(h->err, ERR_STATE, ECANCELED, "cancelled while the model was asked");
        }
        if (m->end_ms != 0 && now >= m->end_ms) {
            reply->failure = MODEL_BUSY;
            return err_set(h->err, ERR_STATE, ETIMEDOUT, "the time for the model is over");
        }
        if (now - h->last_ms > m->silence_ms || now - begun > m->total_ms) {
            reply->failure = MODEL_BUSY;
            return err_set(
                h->err, ERR_STATE, ETIMEDOUT,
                now - begun > m->total_ms ? "the model's answer takes longer than %llu s"
                                          : "the model says nothing for %llu s",
                (unsigned long long)((now - begun > m->total_ms ? m->total_ms : m->silence_ms) /
                                     1000));
        }
    }
    for (CURLMsg *msg; (msg = curl_multi_info_read(m->multi, &left)) != NULL;)
        if (msg->msg == CURLMSG_DONE)
            *code = msg->data.result;
    return 0;
}

static void model_http_address(struct model *m, struct model_reply *reply) {
    char *ip = NULL;
    long port = 0;
    curl_easy_getinfo(m->easy, CURLINFO_PRIMARY_IP, &ip);
    curl_easy_getinfo(m->easy, CURLINFO_PRIMARY_PORT, &port);
    if (ip != NULL && ip[0] != '\0')
        snprintf(reply->host, sizeof(reply->host), strchr(ip, ':') != NULL ? "[%s]:%ld" : "%s:%ld",
                 ip, port);
}

static int model_http_failed(struct model_http *h, CURLcode code, const char *reason,
                             struct model_reply *reply) {
    if (h->forbidden) {
        reply->failure = MODEL_FORBIDDEN;
        return err_set(h->err, ERR_STATE, 0,
                       "%s is not on this machine, and only local models are allowed", h->m->url);
    }
    if (h->broken) {
        reply->failure = MODEL_BROKEN;
        return -1;
    }
    reply->failure = MODEL_BUSY;
    return err_set(h->err, ERR_SYSTEM, 0, "asking the model at %s: %s", h->m->url,
                   reason[0] != '\0' ? reason : curl_easy_strerror(code));
}

/* The bytes are in: do they make an answer? */
static int model_http_judge(struct model_http *h, struct model_reply *reply) {
    struct model_attempt *t = h->attempt;
    struct model_answer *a = h->answer;
    if (t->status >= 300 || t->status == 0) {
        model_error_read(t->body.data != NULL ? t->body.data : "", t->body.len, t->status,
                         h->m->key, reply, h->err);
        return -1;
    }
    if (h->streamed && model_sse_end(&h->sse, h->err) < 0) {
        reply->failure = MODEL_BROKEN;
        return -1;
    }
    if (a->trouble[0] != '\0') {
        reply->failure = a->failed;
        return err_set(h->err, ERR_STATE, 0, "%s", a->trouble);
    }
    if (!h->streamed) {
        json_t *root = json_loadb(t->body.data != NULL ? t->body.data : "", t->body.len, 0, NULL);
        int rc = json_is_object(root)
                     ? h->wire->whole(a, root, h->err)
                     : err_set(h->err, ERR_PROTOCOL, 0,
                               "the answer of %s is neither a stream nor a JSON object", h->m->url);
        json_decref(root);
        reply->failure = rc < 0 ? MODEL_BROKEN : MODEL_OK;
        return rc;
    }
    /* [DONE] is missing at some servers; the reason for stopping, or the end, must be there. */
    if (!a->closed && !a->stopped) {
        reply->failure = MODEL_BROKEN;
        return err_set(h->err, ERR_PROTOCOL, 0, "the model's answer broke off in the middle");
    }
    return 0;
}

int model_http_post(struct model *m, struct model_attempt *attempt, struct model_reply *reply,
                    struct err *err) {
    struct model_http h = {
        .m = m, .wire = attempt->wire, .answer = attempt->answer, .attempt = attempt, .err = err};
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    char reason[CURL_ERROR_SIZE] = "";
    CURLcode code = CURLE_OK;
    attempt->wait_ms = attempt->should_retry = -1;
    buf_init(&attempt->body, MODEL_ANSWER_MAX);
    model_sse_init(&h.sse, model_http_event, &h);
    if (headers == NULL || h.wire->headers(m, &headers) < 0) {
        curl_slist_free_all(headers);
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    }
    curl_easy_setopt(m->easy, CURLOPT_HTTPHEADER, headers);
    if (attempt->sent != NULL) {
        curl_easy_setopt(m->easy, CURLOPT_POSTFIELDS, attempt->sent);
        curl_easy_setopt(m->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)attempt->sent_len);
    }
    curl_easy_setopt(m->easy, CURLOPT_OPENSOCKETDATA, &h);
    curl_easy_setopt(m->easy, CURLOPT_WRITEDATA, &h);
    curl_easy_setopt(m->easy, CURLOPT_HEADERDATA, &h);
    curl_easy_setopt(m->easy, CURLOPT_ERRORBUFFER, reason);
    curl_multi_add_handle(m->multi, m->easy);
    int rc = model_http_drive(&h, &code, reply);
    curl_easy_getinfo(m->easy, CURLINFO_RESPONSE_CODE, &attempt->status);
    model_http_address(m, reply);
    curl_multi_remove_handle(m->multi, m->easy);
    curl_easy_setopt(m->easy, CURLOPT_ERRORBUFFER, NULL);
    /* A stream whose last event came is whole, however the connection ends. */
    if (rc == 0 && code != CURLE_OK && !(h.answer->closed && !h.broken))
        rc = model_http_failed(&h, code, reason, reply);
    else if (rc == 0)
        rc = model_http_judge(&h, reply);
    curl_slist_free_all(headers);
    model_sse_done(&h.sse);
    return rc;
}

#include "model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "clock.h"
#include "model_internal.h"

#define MODEL_SILENCE_MS 120000u
#define MODEL_TOTAL_MS 600000u
#define MODEL_WAIT_FIRST_MS 500u
#define MODEL_WAIT_MAX_MS 8000u
/* A server that asks for more than this is not waited for. */
#define MODEL_WAIT_ASKED_MS 60000

/* "localhost", 127.x.y.z or [::1]: what needs no look-up to be known as this machine. */
static bool model_is_local(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    char inner[64];
    size_t n = strlen(host);
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (n < 3 || n >= sizeof(inner) || host[0] != '[' || host[n - 1] != ']')
        return false;
    memcpy(inner, host + 1, n - 2);
    inner[n - 2] = '\0';
    return inet_pton(AF_INET6, inner, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int model_take_url(struct model *m, const struct model_options *o, struct err *err) {
    CURLU *u = curl_url();
    char *host = NULL, *scheme = NULL, *user = NULL, *query = NULL;
    int rc = -1;
    if (u == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    if (curl_url_set(u, CURLUPART_URL, o->url, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        err_set(err, ERR_INVALID, 0, "the model's URL must be http://… or https://…");
    else if (curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK ||
             curl_url_get(u, CURLUPART_QUERY, &query, 0) == CURLUE_OK)
        err_set(err, ERR_INVALID, 0,
                "the model's URL must have no user and no query; the key is in PINFOLD_MODEL_KEY");
    else if (o->local_only && !model_is_local(host))
        err_set(err, ERR_INVALID, 0,
                "only local models are allowed, and %.100s is not an address of this machine",
                host);
    else
        rc = 0;
    if (rc == 0 && m->protocol == MODEL_AUTO)
        m->protocol = strcasestr(host, "anthropic") != NULL ? MODEL_ANTHROPIC : MODEL_OPENAI;
    /* Everybody but OpenAI itself knows max_tokens. */
    if (rc == 0)
        m->old_limit = strcasestr(host, "openai.com") == NULL;
    curl_free(host);
    curl_free(scheme);
    curl_free(user);
    curl_free(query);
    curl_url_cleanup(u);
    return rc;
}

/* The URL with the endpoint's path behind it. */
static int model_join_url(struct model *m, const char *url, struct err *err) {
    const char *path = m->protocol == MODEL_ANTHROPIC ? model_anthropic.path : model_openai.path;
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    /* "https://api.anthropic.com/v1" is what people write for both. */
    if (m->protocol == MODEL_ANTHROPIC && n >= 3 && memcmp(url + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (snprintf(m->url, sizeof(m->url), "%.*s%s", (int)n, url, path) >= (int)sizeof(m->url))
        return err_set(err, ERR_INVALID, 0, "the model's URL is too long");
    return 0;
}

struct model *model_new(const struct model_options *o, struct err *err) {
    struct model *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        return NULL;
    }
    m->protocol = o->protocol;
    m->local_only = o->local_only;
    m->retries = o->retries;
    m->silence_ms = o->silence_ms > 0 ? o->silence_ms : MODEL_SILENCE_MS;
    m->total_ms = o->total_ms > 0 ? o->total_ms : MODEL_TOTAL_MS;
    m->cancel_fd = o->cancel_fd;
    m->on_text = o->on_text;
    m->on_retry = o->on_retry;
    m->arg = o->arg;
    bool fits = o->name != NULL && o->name[0] != '\0' && strlen(o->name) < sizeof(m->name) &&
                (o->key == NULL || strlen(o->key) < sizeof(m->key)) &&
                (o->ca == NULL || strlen(o->ca) < sizeof(m->ca));
    /* A key that holds a line break would be more than one header. */
    if (fits && o->key != NULL && strpbrk(o->key, "\r\n") != NULL)
        fits = false;
    if (!fits) {
        err_set(err, ERR_INVALID, 0,
                "the model's name or key is missing, too long or not one line");
        model_free(m);
        return NULL;
    }
    snprintf(m->name, sizeof(m->name), "%s", o->name);
    snprintf(m->key, sizeof(m->key), "%s", o->key != NULL ? o->key : "");
    snprintf(m->ca, sizeof(m->ca), "%s", o->ca != NULL ? o->ca : "");
    if (model_take_url(m, o, err) < 0 || model_join_url(m, o->url, err) < 0 ||
        model_http_set_up(m, err) < 0) {
        model_free(m);
        return NULL;
    }
    return m;
}

const char *model_provider(const struct model *m) {
    return m->protocol == MODEL_ANTHROPIC ? "anthropic" : "openai";
}

void model_free(struct model *m) {
    if (m == NULL)
        return;
    curl_easy_cleanup(m->easy);
    curl_multi_cleanup(m->multi);
    explicit_bzero(m->key, sizeof(m->key));
    free(m);
}

/* How long before the next attempt: what the server asks for, else 0.5 s, 1 s, 2 s … 8 s, less up
 * to a quarter, so that many clients do not come back at one moment. */
static uint64_t model_wait_ms(const struct model_attempt *t, unsigned attempt) {
    uint64_t ms = MODEL_WAIT_FIRST_MS << (attempt < 5 ? attempt : 5);
    unsigned char random = 0;
    if (t->wait_ms >= 0)
        return (uint64_t)t->wait_ms;
    if (ms > MODEL_WAIT_MAX_MS)
        ms = MODEL_WAIT_MAX_MS;
    (void)!getrandom(&random, 1, GRND_NONBLOCK);
    return ms - ms * random / 1024;
}

static bool model_may_repeat(const struct model *m, const struct model_attempt *t,
                             const struct model_reply *reply, unsigned attempt) {
    if (attempt >= m->retries || t->wait_ms > MODEL_WAIT_ASKED_MS)
        return false;
    if (reply->failure == MODEL_CANCELLED || reply->failure == MODEL_FORBIDDEN ||
        reply->failure == MODEL_OVERFLOW)
        return false;
    if (t->should_retry >= 0)
        return t->should_retry == 1;
    return reply->failure == MODEL_BUSY || reply->failure == MODEL_BROKEN;
}

/* Some servers know only the one, some only the other name of the token limit. */
static bool model_other_limit(struct model *m, const struct model_attempt *t) {
    const char *body = t->body.data != NULL ? t->body.data : "";
    if (t->status != 400 && t->status != 422)
        return false;
    if (!model_error_names(body, m->old_limit ? "max_completion_tokens" : "max_tokens") ||
        m->protocol != MODEL_OPENAI || strstr(body, "nsupported") == NULL)
        return false;
    m->old_limit = !m->old_limit;
    return true;
}

static int model_attempt(struct model *m, const struct model_request *request,
                         struct model_attempt *t, struct model_reply *reply, struct err *err) {
    const struct model_wire *wire =
        m->protocol == MODEL_ANTHROPIC ? &model_anthropic : &model_openai;
    struct model_answer *a = malloc(sizeof(*a));
    json_t *root = wire->body(m, request);
    char *body = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    *t = (struct model_attempt){.wire = wire, .sent = body, .answer = a};
    if (a == NULL || body == NULL) {
        free(a);
        free(body);
        reply->failure = MODEL_BROKEN;
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory, or a text that is not UTF-8");
    }
    model_answer_init(a, m);
    t->sent_len = strlen(body);
    int rc = model_http_post(m, t, reply, err);
    if (rc == 0) {
        rc = model_answer_finish(a, reply, err);
        reply->failure = rc < 0 ? MODEL_BROKEN : MODEL_OK;
    } else {
        reply->usage = a->usage;
    }
    model_answer_done(a);
    free(a);
    free(body);
    return rc;
}

int model_ask(struct model *m, const struct model_request *request, struct model_reply *reply,
              struct err *err) {
    uint64_t begun = clock_mono_ms();
    int rc = -1;
    bool other = false;
    memset(reply, 0, sizeof(*reply));
    m->end_ms = request->total_ms > 0 ? begun + request->total_ms : 0;
    for (unsigned attempt = 0;; attempt++) {
        struct model_attempt t;
        model_message_done(&reply->message);
        reply->attempts++;
        rc = model_attempt(m, request, &t, reply, err);
        bool again = rc < 0 && model_may_repeat(m, &t, reply, attempt);
        bool swap = rc < 0 && !other && model_other_limit(m, &t);
        uint64_t wait = model_wait_ms(&t, attempt);
        again = again && (m->end_ms == 0 || clock_mono_ms() + wait < m->end_ms);
        buf_done(&t.body);
        if (swap) {
            other = true;
            continue;
        }
        if (!again)
            break;
        if (m->on_retry != NULL)
            m->on_retry(m->arg, attempt + 1, wait, err->text);
        if (!model_http_wait(m, wait)) {
            reply->failure = MODEL_CANCELLED;
            rc = err_set(err, ERR_STATE, ECANCELED, "cancelled while waiting for the model");
            break;
        }
    }
    reply->duration_ms = clock_mono_ms() - begun;
    return rc;
}

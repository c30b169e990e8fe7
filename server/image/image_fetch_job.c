#include "image_fetch_job.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "str.h"

#define IMAGE_FETCH_JOB_TRIES 5
#define IMAGE_FETCH_JOB_TOKEN_MAX 65536u
#define IMAGE_FETCH_JOB_ACCEPT                                                                     \
    "Accept: application/vnd.oci.image.index.v1+json, "                                            \
    "application/vnd.docker.distribution.manifest.list.v2+json, "                                  \
    "application/vnd.oci.image.manifest.v1+json, "                                                 \
    "application/vnd.docker.distribution.manifest.v2+json"

/* One request. */
struct image_fetch_job_try {
    CURL *curl;
    int fd;           /* where a body goes … */
    struct buf *text; /* … or this */
    uint64_t have;    /* bytes in fd */
    uint64_t max;
    bool begun, large, failed;
    bool stranger; /* the answer is not the registry's own: it led us to another host */
    char challenge[2048];
};

static size_t image_fetch_job_header(char *line, size_t size, size_t count, void *arg) {
    static const char name[] = "www-authenticate:";
    struct image_fetch_job_try *t = arg;
    size_t len = size * count;

    if (len > 5 && strncmp(line, "HTTP/", 5) == 0)
        t->challenge[0] = '\0'; /* the one before had led elsewhere */
    if (len > strlen(name) && len - strlen(name) < sizeof(t->challenge) &&
        strncasecmp(line, name, strlen(name)) == 0) {
        memcpy(t->challenge, line + strlen(name), len - strlen(name));
        t->challenge[len - strlen(name)] = '\0';
        t->challenge[strcspn(t->challenge, "\r\n")] = '\0';
    }
    return len;
}

/* The body of an error is not part of the file; a whole body takes the place of what is there. */
static int image_fetch_job_begin(struct image_fetch_job_try *t) {
    long status = 0;

    t->begun = true;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
        t->have = 0;
        return ftruncate(t->fd, 0);
    }
    return status == 206 ? 0 : 1;
}

static size_t image_fetch_job_body(char *data, size_t size, size_t count, void *arg) {
    struct image_fetch_job_try *t = arg;
    size_t len = size * count, done = 0;
    int rc = 0;

    if (t->text != NULL)
        return buf_append(t->text, data, len, NULL) == 0 ? len : 0;
    if (!t->begun && (rc = image_fetch_job_begin(t)) != 0) {
        t->begun = false;
        t->failed = rc < 0;
        return rc < 0 ? 0 : len;
    }
    if (len > t->max - t->have) {
        t->large = true;
        return 0;
    }
    while (done < len) {
        ssize_t put = pwrite(t->fd, data + done, len - done, (off_t)(t->have + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            t->failed = true;
            return 0;
        }
        done += (size_t)put;
    }
    t->have += len;
    return len;
}

#define IMAGE_FETCH_JOB_SET(option, value)                                                         \
    rc = rc == CURLE_OK ? curl_easy_setopt(t->curl, option, value) : rc

static CURLcode image_fetch_job_set(struct image_fetch_job_try *t, const struct image_fetch *f,
                                    const char *url, const char *token) {
    const char *schemes = f->ref->loopback ? "http,https" : "https";
    CURLcode rc = CURLE_OK;

    IMAGE_FETCH_JOB_SET(CURLOPT_URL, url);
    IMAGE_FETCH_JOB_SET(CURLOPT_PROTOCOLS_STR, schemes);
    IMAGE_FETCH_JOB_SET(CURLOPT_REDIR_PROTOCOLS_STR, schemes);
    IMAGE_FETCH_JOB_SET(CURLOPT_NOSIGNAL, 1L);
    IMAGE_FETCH_JOB_SET(CURLOPT_FOLLOWLOCATION, 1L);
    IMAGE_FETCH_JOB_SET(CURLOPT_MAXREDIRS, 5L);
    IMAGE_FETCH_JOB_SET(CURLOPT_CONNECTTIMEOUT, 20L);
    IMAGE_FETCH_JOB_SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    IMAGE_FETCH_JOB_SET(CURLOPT_LOW_SPEED_TIME, 30L);
    IMAGE_FETCH_JOB_SET(CURLOPT_USERAGENT, "pinfold");
    IMAGE_FETCH_JOB_SET(CURLOPT_HEADERFUNCTION, image_fetch_job_header);
    IMAGE_FETCH_JOB_SET(CURLOPT_HEADERDATA, t);
    IMAGE_FETCH_JOB_SET(CURLOPT_WRITEFUNCTION, image_fetch_job_body);
    IMAGE_FETCH_JOB_SET(CURLOPT_WRITEDATA, t);
    if (f->ca_file != NULL)
        IMAGE_FETCH_JOB_SET(CURLOPT_CAINFO, f->ca_file);
    if (token != NULL && token[0] != '\0') {
        IMAGE_FETCH_JOB_SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        IMAGE_FETCH_JOB_SET(CURLOPT_XOAUTH2_BEARER, token);
    } else if (token != NULL && f->user != NULL) {
        IMAGE_FETCH_JOB_SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        IMAGE_FETCH_JOB_SET(CURLOPT_USERPWD, f->user);
    }
    return rc;
}

/* Did the registry itself answer last? */
static bool image_fetch_job_is_own(CURL *h, const struct image_registry_ref *ref) {
    char own[sizeof(ref->host) + 16];
    char *url = NULL;
    int len = snprintf(own, sizeof(own), "%s://%s/", ref->loopback ? "http" : "https", ref->host);

    return curl_easy_getinfo(h, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url != NULL &&
           strncmp(url, own, (size_t)len) == 0;
}

/* -> HTTP status, or -1 with *err; *rc is libcurl's word. `token`: NULL = nothing is said about who
 * asks, "" = user and password. */
static long image_fetch_job_get(struct image_fetch_job_try *t, const struct image_fetch *f,
                                const char *url, const char *token, CURLcode *rc) {
    struct curl_slist *head = NULL;
    long status = -1;
    char range[32];

    t->curl = curl_easy_init();
    if (t->text == NULL)
        head = curl_slist_append(NULL, IMAGE_FETCH_JOB_ACCEPT);
    *rc = t->curl != NULL ? image_fetch_job_set(t, f, url, token) : CURLE_OUT_OF_MEMORY;
    if (*rc == CURLE_OK && head != NULL)
        *rc = curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, head);
    /* Not RESUME_FROM: whoever knows no ranges sends all of it, which is as good. */
    snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->have);
    if (*rc == CURLE_OK && t->have > 0)
        *rc = curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
    if (*rc == CURLE_OK)
        *rc = curl_easy_perform(t->curl);
    if (t->curl != NULL)
        (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    t->stranger = t->curl == NULL || !image_fetch_job_is_own(t->curl, f->ref);
    curl_slist_free_all(head);
    curl_easy_cleanup(t->curl);
    t->curl = NULL;
    return status;
}

/* ---- who asks ---- */

static int image_fetch_job_token_url(const struct image_registry_challenge *c, char *url,
                                     size_t size) {
    CURL *h = curl_easy_init();
    char *service = h != NULL ? curl_easy_escape(h, c->service, 0) : NULL;
    char *scope = h != NULL ? curl_easy_escape(h, c->scope, 0) : NULL;
    int n = service != NULL && scope != NULL
                ? snprintf(url, size, "%s%cservice=%s&scope=%s", c->realm,
                           strchr(c->realm, '?') != NULL ? '&' : '?', service, scope)
                : -1;

    curl_free(service);
    curl_free(scope);
    curl_easy_cleanup(h);
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

static bool image_fetch_job_read_token(const struct buf *text, char *token, size_t size) {
    json_t *root =
        json_loadb(text->data != NULL ? text->data : "", text->len, JSON_REJECT_DUPLICATES, NULL);
    const char *found = json_string_value(json_object_get(root, "token"));
    bool ok;

    if (found == NULL)
        found = json_string_value(json_object_get(root, "access_token"));
    ok = found != NULL && found[0] != '\0' && str_copy(token, size, found);
    json_decref(root);
    return ok;
}

static int image_fetch_job_ask(const struct image_fetch *f, const char *challenge, char *token,
                               size_t size, struct err *err) {
    struct image_registry_challenge c;
    struct buf text;
    struct image_fetch_job_try t = {.fd = -1, .text = &text};
    char url[2 * IMAGE_REGISTRY_URL_MAX];
    CURLcode rc = CURLE_OK;
    long status;
    bool ok;

    if (!image_registry_challenge(challenge, &c))
        return err_set(err, ERR_INVALID, EACCES,
                       "the registry refuses, and does not say how to "
                       "say who asks");
    if (c.basic && f->user == NULL)
        return err_set(err, ERR_INVALID, EACCES,
                       "the registry asks for a name and a password: give them with --auth FILE");
    if (c.basic) {
        token[0] = '\0';
        return 0;
    }
    if (!image_registry_url_ok(c.realm, f->ref->loopback) ||
        image_fetch_job_token_url(&c, url, sizeof(url)) < 0)
        return err_set(err, ERR_INVALID, EACCES,
                       "the registry sends us for a token to a place that is not https");
    buf_init(&text, IMAGE_FETCH_JOB_TOKEN_MAX);
    status = image_fetch_job_get(&t, f, url, f->user != NULL ? "" : NULL, &rc);
    ok = rc == CURLE_OK && status == 200 && image_fetch_job_read_token(&text, token, size);
    buf_done(&text);
    return ok ? 0
              : err_set(err, ERR_INVALID, EACCES, "no token was given for the registry (%ld%s%s)",
                        status, rc != CURLE_OK ? ": " : "",
                        rc != CURLE_OK ? curl_easy_strerror(rc) : "");
}

/* ---- all of it ---- */

/* 1 = once more, 0 = there, -1. */
static int image_fetch_job_judge(const struct image_fetch_job_try *t, long status, CURLcode rc,
                                 struct err *err) {
    if (t->large)
        return err_set(err, ERR_INVALID, EFBIG, "the registry sends more than it should");
    if (t->failed)
        return err_sys(err, "cannot keep what the registry sends");
    if (rc == CURLE_OK && (status == 200 || status == 206))
        return 0;
    if (status == 404)
        return err_set(err, ERR_INVALID, ENOENT, "the registry does not have it");
    if (status == 401 || status == 403)
        return err_set(err, ERR_INVALID, EACCES, "the registry refuses (%ld)", status);
    if (rc == CURLE_OK)
        err_set(err, ERR_SYSTEM, EIO, "the registry answers with status %ld", status);
    else
        err_set(err, ERR_SYSTEM, EIO, "the registry cannot be reached, or broke off: %s",
                curl_easy_strerror(rc));
    /* What was wrong with the request is wrong with the next one as well. */
    return status >= 400 && status < 500 && status != 416 && status != 429 ? -1 : 1;
}

static int image_fetch_job_try(const struct image_fetch_job *j, char *token, size_t size,
                               bool *asked, struct err *err) {
    struct image_fetch_job_try t = {.fd = j->fd, .max = j->max};
    CURLcode rc = CURLE_OK;
    struct stat st;
    long status;

    if (fstat(j->fd, &st) < 0)
        return err_sys(err, "cannot inspect the file");
    t.have = (uint64_t)st.st_size;
    status = image_fetch_job_get(&t, &j->f, j->url, *asked ? token : NULL, &rc);
    /* Where the registry keeps its blobs, nobody has a say in who is told the password. */
    if (status == 401 && !*asked && !t.stranger) {
        *asked = true;
        return image_fetch_job_ask(&j->f, t.challenge, token, size, err) < 0 ? -1 : 1;
    }
    /* The rest that was asked for is not there: what is, is not its beginning. */
    if (status == 416 && ftruncate(j->fd, 0) < 0)
        return err_sys(err, "cannot cut the file");
    return image_fetch_job_judge(&t, status, rc, err);
}

int image_fetch_job(const struct image_fetch_job *job, struct err *err) {
    char *token = calloc(1, IMAGE_FETCH_JOB_TOKEN_MAX);
    bool asked = false;
    int rc = 1;

    if (token == NULL)
        return err_sys(err, "cannot fetch");
    for (int i = 0; rc > 0 && i <= IMAGE_FETCH_JOB_TRIES; i++) {
        bool before = asked;

        rc = image_fetch_job_try(job, token, IMAGE_FETCH_JOB_TOKEN_MAX, &asked, err);
        if (rc > 0 && asked == before && i > 0)
            (void)usleep((useconds_t)(50000 << i));
    }
    free(token);
    return rc == 0 ? 0 : -1;
}

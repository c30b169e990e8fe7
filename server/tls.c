#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"

#define TLS_FILE_MAX ((size_t)256 * 1024)
#define TLS_PATH_MAX 4096
#define TLS_ID_SIZE 32 /* SHA-256 of a public key */

struct tls {
    char certificate[TLS_PATH_MAX], key[TLS_PATH_MAX]; /* absolute */
    struct tls_pair *pair;
};

static int tls_error(struct err *err, int code, const char *doing, const char *path) {
    return err_set(err, ERR_INVALID, 0, "%s %s: %s", doing, path, gnutls_strerror(code));
}

/* Tools that renew certificates replace links: they are followed, each time anew. */
static int tls_read(const char *path, struct buf *out, struct err *err) {
    fd_cleanup int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(err, "cannot open %s", path);
    for (;;) {
        char *room = buf_reserve(out, 4096, err);
        if (room == NULL)
            return err_wrap(err, "%s", path);
        ssize_t got = read(fd, room, 4096);
        if (got < 0)
            return err_sys(err, "cannot read %s", path);
        if (got == 0)
            return 0;
        out->len += (size_t)got;
    }
}

static void tls_wipe(struct buf *b) {
    if (b->data != NULL)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

/* The certificate. */

static bool tls_name(gnutls_x509_crt_t crt, unsigned i, char *name, size_t size) {
    char raw[256];
    size_t len = sizeof(raw);
    int type = gnutls_x509_crt_get_subject_alt_name(crt, i, raw, &len, NULL);
    if (type == GNUTLS_SAN_IPADDRESS && (len == 4 || len == 16))
        return inet_ntop(len == 4 ? AF_INET : AF_INET6, raw, name, (socklen_t)size) != NULL;
    if (type != GNUTLS_SAN_DNSNAME || len >= size)
        return type >= 0 && snprintf(name, size, "another name") > 0;
    memcpy(name, raw, len);
    name[len] = '\0';
    return true;
}

static void tls_names(gnutls_x509_crt_t crt, char *out, size_t size) {
    char name[256];
    size_t at = 0, len = sizeof(name);
    for (unsigned i = 0; tls_name(crt, i, name, sizeof(name)); i++) {
        int n = snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", name);
        if (n < 0 || (size_t)n >= size - at) {
            memcpy(out + size - 4, "...", 4);
            return;
        }
        at += (size_t)n;
    }
    if (at == 0 &&
        gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &len) >= 0)
        snprintf(out, size, "%s", name);
}

static int tls_chain(struct tls_pair *p, const char *path, const struct buf *text,
                     struct err *err) {
    gnutls_datum_t data = {.data = (unsigned char *)text->data, .size = (unsigned)text->len};
    gnutls_x509_crt_t *crts = NULL;
    unsigned count = 0;
    int rc = gnutls_x509_crt_list_import2(&crts, &count, &data, GNUTLS_X509_FMT_PEM,
                                          GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    unsigned used = count; /* of how many there are, and of how many there is room for */
    if (rc < 0)
        return tls_error(err, rc, "reading the certificate", path);
    if (count > TLS_CHAIN_MAX)
        err_set(err, ERR_LIMIT, 0, "%s holds more than %u certificates", path, TLS_CHAIN_MAX);
    else if ((rc = gnutls_pcert_import_x509_list(p->chain, crts, &used, 0)) < 0)
        tls_error(err, rc, "reading the certificate", path);
    else
        p->count = used;
    if (count > 0) {
        p->begins_s = (uint64_t)gnutls_x509_crt_get_activation_time(crts[0]);
        p->ends_s = (uint64_t)gnutls_x509_crt_get_expiration_time(crts[0]);
        tls_names(crts[0], p->names, sizeof(p->names));
    }
    for (unsigned i = 0; i < count; i++)
        gnutls_x509_crt_deinit(crts[i]);
    gnutls_free(crts);
    return p->count > 0 ? 0 : -1;
}

/* The key, and whether it is the certificate's. */

static int tls_match(const struct tls_pair *p, const char *path, struct err *err) {
    unsigned char ours[TLS_ID_SIZE], theirs[TLS_ID_SIZE];
    size_t ours_len = sizeof(ours), theirs_len = sizeof(theirs);
    gnutls_pubkey_t pub = NULL;
    int rc = gnutls_pubkey_init(&pub);
    if (rc == 0)
        rc = gnutls_pubkey_import_privkey(pub, p->key, 0, 0);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, ours, &ours_len);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(p->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, theirs,
                                      &theirs_len);
    if (pub != NULL)
        gnutls_pubkey_deinit(pub);
    if (rc < 0)
        return tls_error(err, rc, "comparing certificate and key", path);
    if (ours_len != theirs_len || memcmp(ours, theirs, ours_len) != 0)
        return err_set(err, ERR_INVALID, 0, "the key in %s belongs to another certificate", path);
    return 0;
}

static int tls_key(struct tls_pair *p, const char *path, const struct buf *text, struct err *err) {
    gnutls_datum_t data = {.data = (unsigned char *)text->data, .size = (unsigned)text->len};
    int rc = gnutls_privkey_init(&p->key);
    if (rc == 0)
        rc = gnutls_privkey_import_x509_raw(p->key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc == GNUTLS_E_DECRYPTION_FAILED)
        return err_set(err, ERR_INVALID, 0,
                       "the key in %s is locked with a password; store it without one", path);
    if (rc < 0)
        return tls_error(err, rc, "reading the key", path);
    return tls_match(p, path, err);
}

static struct tls_pair *tls_load(const struct tls *t, struct err *err) {
    struct tls_pair *p = calloc(1, sizeof(*p));
    struct buf certificate, key;
    buf_init(&certificate, TLS_FILE_MAX);
    buf_init(&key, TLS_FILE_MAX);
    int rc = p == NULL ? err_set(err, ERR_SYSTEM, ENOMEM, "out of memory") : 0;
    if (rc == 0) {
        p->refs = 1;
        rc = tls_read(t->certificate, &certificate, err);
    }
    if (rc == 0)
        rc = tls_read(t->key, &key, err);
    if (rc == 0)
        rc = tls_chain(p, t->certificate, &certificate, err);
    if (rc == 0)
        rc = tls_key(p, t->key, &key, err);
    buf_done(&certificate);
    tls_wipe(&key);
    if (rc == 0)
        return p;
    tls_pair_drop(p);
    return NULL;
}

/* Where the file is when the current directory has changed. */
static int tls_absolute(char out[TLS_PATH_MAX], const char *path, struct err *err) {
    char here[TLS_PATH_MAX] = "";
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL)
        return err_sys(err, "finding the current directory");
    int n = snprintf(out, TLS_PATH_MAX, "%s%s%s", here, path[0] != '/' ? "/" : "", path);
    if (n >= TLS_PATH_MAX)
        return err_set(err, ERR_INVALID, 0, "the name of the certificate or key is too long");
    return 0;
}

int tls_open(const char *certificate, const char *key, struct tls **out, struct err *err) {
    struct tls *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    if (tls_absolute(t->certificate, certificate, err) == 0 && tls_absolute(t->key, key, err) == 0)
        t->pair = tls_load(t, err);
    if (t->pair == NULL) {
        free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tls_free(struct tls *t) {
    if (t != NULL)
        tls_pair_drop(t->pair);
    free(t);
}

int tls_reload(struct tls *t, struct err *err) {
    struct tls_pair *p = tls_load(t, err);
    if (p == NULL)
        return -1;
    if (tls_pair_dates(p, clock_real_ms() / 1000, err) < 0) {
        tls_pair_drop(p);
        return -1;
    }
    tls_pair_drop(t->pair);
    t->pair = p;
    return 0;
}

struct tls_pair *tls_pair(const struct tls *t) {
    return t->pair;
}

struct tls_pair *tls_pair_keep(struct tls_pair *p) {
    p->refs++;
    return p;
}

void tls_pair_drop(struct tls_pair *p) {
    if (p == NULL || --p->refs > 0)
        return;
    for (unsigned i = 0; i < p->count; i++)
        gnutls_pcert_deinit(&p->chain[i]);
    if (p->key != NULL)
        gnutls_privkey_deinit(p->key);
    free(p);
}

int tls_pair_dates(const struct tls_pair *p, uint64_t now_s, struct err *err) {
    bool early = now_s < p->begins_s;
    if (!early && now_s <= p->ends_s)
        return 0;
    time_t when = (time_t)(early ? p->begins_s : p->ends_s);
    struct tm tm;
    char text[32] = "";
    if (gmtime_r(&when, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    return err_set(err, ERR_INVALID, 0, "the certificate for %s %s %s UTC",
                   p->names[0] != '\0' ? p->names : "(no name)",
                   early ? "is valid only from" : "has expired at", text);
}

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "fd.h"
#include "listen.h"
#include "tls.h"

#define CHECK_DAY_S ((uint64_t)24 * 3600)
#define CHECK_RENEW_DAYS 14u

static bool check_is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static void check_port(struct check *c) {
    const struct config *o = c->config;
    struct err err;
    uint16_t bound = 0;
    err_clear(&err);
    if (c->serving) {
        check_say(c, CHECK_OK, "port", "not tried: a server runs with this state directory");
        return;
    }
    fd_cleanup int fd = listen_open(o->listen, (uint16_t)o->port, &bound, &err);
    if (fd < 0)
        check_err(c, CHECK_FAIL, "port", &err);
    else
        check_say(c, CHECK_OK, "port", "%s port %u is free", o->listen, bound);
}

static void check_exposed(struct check *c) {
    const struct config *o = c->config;
    if (o->tls_certificate == NULL && !check_is_loopback(o->listen) && o->proxy.count == 0)
        check_say(c, CHECK_WARN, "network",
                  "tokens cross the network as they are: %s is not only this machine, and neither "
                  "tls.certificate nor proxy is set",
                  o->listen);
}

static void check_descriptors(struct check *c) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return;
    uint64_t room = rl.rlim_max < 256 ? 0 : (rl.rlim_max - 128) / 2;
    if (room == 0)
        check_say(c, CHECK_FAIL, "open files",
                  "the limit is %llu and the server needs at least 256",
                  (unsigned long long)rl.rlim_max);
    else if (room < c->config->connections)
        check_say(c, CHECK_WARN, "open files",
                  "the limit of %llu allows %llu connections instead of %llu",
                  (unsigned long long)rl.rlim_max, (unsigned long long)room,
                  (unsigned long long)c->config->connections);
}

static void check_dates(struct check *c, const struct tls_pair *pair) {
    uint64_t now = clock_real_ms() / 1000;
    struct err err;
    err_clear(&err);
    if (tls_pair_dates(pair, now, &err) < 0) {
        check_err(c, CHECK_FAIL, "certificate", &err);
        return;
    }
    unsigned long long days = (pair->ends_s - now) / CHECK_DAY_S;
    check_say(c, days < CHECK_RENEW_DAYS ? CHECK_WARN : CHECK_OK, "certificate",
              "it is for %s and valid for %llu more days",
              pair->names[0] != '\0' ? pair->names : "(no name)", days);
}

static void check_key_mode(struct check *c) {
    struct stat st;
    if (stat(c->config->tls_key, &st) == 0 && (st.st_mode & (S_IROTH | S_IWOTH)) != 0)
        check_say(c, CHECK_WARN, "key", "everybody may read %s; chmod o-rw it", c->config->tls_key);
}

static void check_certificate(struct check *c) {
    const struct config *o = c->config;
    struct tls *tls = NULL;
    struct err err;
    err_clear(&err);
    if (o->tls_certificate == NULL && o->tls_key == NULL)
        return;
    if (o->tls_certificate == NULL || o->tls_key == NULL) {
        check_say(c, CHECK_FAIL, "certificate", "HTTPS needs both tls.certificate and tls.key");
        return;
    }
    if (tls_open(o->tls_certificate, o->tls_key, &tls, &err) < 0) {
        check_err(c, CHECK_FAIL, "certificate", &err);
        return;
    }
    check_dates(c, tls_pair(tls));
    check_key_mode(c);
    tls_free(tls);
}

void check_network(struct check *c) {
    check_port(c);
    check_exposed(c);
    check_descriptors(c);
    check_certificate(c);
}

void check_network_as_user(struct check *c) {
    const char *const files[] = {c->config->tls_certificate, c->config->tls_key};
    for (size_t i = 0; i < 2; i++)
        if (files[i] != NULL && faccessat(AT_FDCWD, files[i], R_OK, AT_EACCESS) < 0)
            check_say(c, CHECK_WARN, "renewal",
                      "user %u, who the server becomes, may not read %s: SIGHUP cannot renew it",
                      (unsigned)c->user.uid, files[i]);
}

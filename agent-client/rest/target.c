#include "target.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "str.h"

/* Copies scheme://host[:port] apart; false when there is no host. */
static bool target_host(const char *url, char *host, size_t size) {
    const char *start = strstr(url, "://");
    size_t len;

    if (start == NULL)
        return false;
    start += 3;
    if (*start == '[') {
        start++;
        len = strcspn(start, "]");
    } else {
        len = strcspn(start, ":/?#");
    }
    if (len == 0 || len >= size)
        return false;
    memcpy(host, start, len);
    host[len] = '\0';
    return true;
}

static bool target_is_printable(const char *text) {
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

int target_init(struct target *t, const char *url, const char *token, struct err *err) {
    char host[256];
    struct target out = {0};
    size_t len;

    if (url == NULL || *url == '\0')
        url = TARGET_DEFAULT_URL;
    if (token == NULL)
        token = "";
    if (!str_copy(out.url, sizeof(out.url), url) || !target_is_printable(url))
        return err_set(err, ERR_INVALID, 0, "PINFOLD_URL is too long or holds blanks");
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return err_set(err, ERR_INVALID, 0,
                       "PINFOLD_URL must begin with http:// or https://, such as %s",
                       TARGET_DEFAULT_URL);
    if (strpbrk(url, "@?#") != NULL)
        return err_set(err, ERR_INVALID, 0,
                       "PINFOLD_URL must hold no user name, query or fragment; the token goes "
                       "into PINFOLD_TOKEN");
    if (!target_host(url, host, sizeof(host)))
        return err_set(err, ERR_INVALID, 0, "PINFOLD_URL has no host");
    len = strlen(out.url);
    while (out.url[len - 1] == '/')
        out.url[--len] = '\0';
    /* A line break in it would be a second header. */
    if (!target_is_printable(token) || !str_copy(out.token, sizeof(out.token), token))
        return err_set(err, ERR_INVALID, 0, "PINFOLD_TOKEN is too long or holds blanks");
    out.loopback = strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
                   strcmp(host, "::1") == 0;
    *t = out;
    return 0;
}

int target_from_env(struct target *t, struct err *err) {
    const char *ca = getenv("PINFOLD_CA");

    if (target_init(t, getenv("PINFOLD_URL"), getenv("PINFOLD_TOKEN"), err) < 0)
        return -1;
    if (ca != NULL && !str_copy(t->ca, sizeof(t->ca), ca))
        return err_set(err, ERR_INVALID, 0, "the name of the file in PINFOLD_CA is too long");
    return 0;
}

void target_done(struct target *t) {
    if (t != NULL)
        explicit_bzero(t, sizeof(*t));
}

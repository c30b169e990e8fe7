#include "image_registry.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "image_ref.h"
#include "str.h"

#define IMAGE_REGISTRY_LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define IMAGE_REGISTRY_WORD IMAGE_REGISTRY_LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool image_registry_is_loopback(const char *host, size_t len) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t want = strlen(names[i]);

        if (len >= want && strncmp(host, names[i], want) == 0 &&
            (len == want || host[want] == ':' || host[want] == '/'))
            return true;
    }
    return false;
}

static int image_registry_host(const char *text, size_t len, struct image_registry_ref *ref,
                               struct err *err) {
    bool named = memchr(text, '.', len) != NULL || memchr(text, ':', len) != NULL ||
                 (len == 9 && strncmp(text, "localhost", 9) == 0);

    if (!named)
        return err_set(err, ERR_INVALID, 0,
                       "a reference begins with the host of a registry, as registry.example/NAME");
    if (len >= sizeof(ref->host) || strspn(text, IMAGE_REGISTRY_WORD ".-:[]") < len)
        return err_set(err, ERR_INVALID, 0, "the host of the registry is no host");
    memcpy(ref->host, text, len);
    ref->host[len] = '\0';
    ref->loopback = image_registry_is_loopback(ref->host, len);
    return 0;
}

/* "team/py": words of lower-case letters, digits, . _ - with slashes between. */
static bool image_registry_is_path(const char *path) {
    for (const char *p = path;; p++) {
        size_t len = strspn(p, IMAGE_REGISTRY_LOWER "._-");

        if (len == 0 || strchr(IMAGE_REGISTRY_LOWER, *p) == NULL)
            return false;
        p += len;
        if (*p == '\0')
            return true;
        if (*p != '/')
            return false;
    }
}

/* Cuts the text at the last `mark` behind the last slash. */
static char *image_registry_cut(char *text, char mark) {
    char *slash = strrchr(text, '/'), *at = strrchr(text, mark);

    if (at == NULL || (slash != NULL && at < slash))
        return NULL;
    *at = '\0';
    return at + 1;
}

int image_registry_parse(const char *text, struct image_registry_ref *out, struct err *err) {
    struct image_registry_ref ref = {0};
    const char *slash = strchr(text, '/'), *tag, *digest;
    uint8_t bytes[32];
    char rest[512];

    if (slash == NULL || slash == text || strlen(slash + 1) >= sizeof(rest))
        return err_set(err, ERR_INVALID, 0,
                       "a reference is HOST/NAME[:TAG][@sha256:HEX], as registry.example/py:3");
    if (image_registry_host(text, (size_t)(slash - text), &ref, err) < 0)
        return -1;
    (void)str_copy(rest, sizeof(rest), slash + 1);
    digest = image_registry_cut(rest, '@');
    tag = image_registry_cut(rest, ':');
    if (digest != NULL && (strncmp(digest, "sha256:", 7) != 0 || !image_ref_hex(digest + 7, bytes)))
        return err_set(err, ERR_INVALID, 0,
                       "the digest of a reference is sha256: and 64 lower-case hex digits");
    if (tag != NULL && (tag[0] == '\0' || tag[0] == '.' || tag[0] == '-' ||
                        tag[strspn(tag, IMAGE_REGISTRY_WORD "._-")] != '\0' ||
                        !str_copy(ref.tag, sizeof(ref.tag), tag)))
        return err_set(err, ERR_INVALID, 0, "the tag of the reference is no tag");
    if (!image_registry_is_path(rest) || !str_copy(ref.path, sizeof(ref.path), rest))
        return err_set(err, ERR_INVALID, 0,
                       "the name in the reference is not lower-case letters, digits, . _ - and /");
    if (digest != NULL)
        (void)str_copy(ref.hex, sizeof(ref.hex), digest + 7);
    else if (tag == NULL)
        (void)str_copy(ref.tag, sizeof(ref.tag), "latest");
    *out = ref;
    return 0;
}

/* One NAME="VALUE"; moves *at behind it. */
static bool image_registry_pair(const char **at, char name[32], char *value, size_t size) {
    const char *p = *at + strspn(*at, " \t,"), *equals = strchr(p, '='), *end;
    size_t len;

    if (equals == NULL || equals[1] != '"' || (size_t)(equals - p) >= 32)
        return false;
    memcpy(name, p, (size_t)(equals - p));
    name[equals - p] = '\0';
    end = strchr(equals + 2, '"');
    len = end != NULL ? (size_t)(end - equals - 2) : size;
    if (len >= size)
        return false;
    memcpy(value, equals + 2, len);
    value[len] = '\0';
    *at = end + 1;
    return true;
}

bool image_registry_challenge(const char *text, struct image_registry_challenge *out) {
    struct image_registry_challenge c = {0};
    char name[32], value[1024];

    text += strspn(text, " \t");
    if (strncasecmp(text, "Basic", 5) == 0) {
        c.basic = true;
        *out = c;
        return true;
    }
    if (strncasecmp(text, "Bearer ", 7) != 0)
        return false;
    text += 7;
    while (image_registry_pair(&text, name, value, sizeof(value))) {
        if (strcasecmp(name, "realm") == 0 && !str_copy(c.realm, sizeof(c.realm), value))
            return false;
        if (strcasecmp(name, "service") == 0 && !str_copy(c.service, sizeof(c.service), value))
            return false;
        if (strcasecmp(name, "scope") == 0 && !str_copy(c.scope, sizeof(c.scope), value))
            return false;
    }
    if (c.realm[0] == '\0')
        return false;
    *out = c;
    return true;
}

bool image_registry_url_ok(const char *url, bool loopback) {
    if (strncmp(url, "https://", 8) == 0)
        return url[8] != '\0' && strchr(url, '@') == NULL;
    if (strncmp(url, "http://", 7) != 0 || !loopback)
        return false;
    return image_registry_is_loopback(url + 7, strcspn(url + 7, "/?#"));
}

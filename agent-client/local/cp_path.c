#include "cp_path.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "str.h"

#define CP_PATH_HOME "/workspace"

/* Whether `text` ends with '/', or names contents ("." or "…/."). */
static void cp_path_mark(struct cp_path *p, const char *text) {
    size_t len = strlen(text);

    p->into = len > 0 && text[len - 1] == '/';
    p->contents = (len == 1 && text[0] == '.') || (len > 1 && strcmp(text + len - 2, "/.") == 0);
}

int cp_path_append(struct cp_path *p, const char *name, struct err *err) {
    size_t used = strlen(p->path);
    bool root = used == 1 && p->path[0] == '/';

    if (root)
        used = 0;
    if (used + 1 + strlen(name) >= sizeof(p->path))
        return err_set(err, ERR_INVALID, 0, "the path is too long");
    p->path[used] = '/';
    memcpy(p->path + used + 1, name, strlen(name) + 1);
    return 0;
}

/* Takes a remote path component by component. */
static int cp_path_clean(struct cp_path *p, const char *text, struct err *err) {
    char part[256];

    while (*text != '\0') {
        size_t len = strcspn(text, "/");

        if (len == 2 && text[0] == '.' && text[1] == '.')
            return err_set(err, ERR_INVALID, 0, "a path in a sandbox must not contain '..'");
        if (len >= sizeof(part))
            return err_set(err, ERR_INVALID, 0, "a name in the path is too long");
        memcpy(part, text, len);
        part[len] = '\0';
        if (len > 0 && strcmp(part, ".") != 0 && cp_path_append(p, part, err) < 0)
            return -1;
        text += len;
        text += *text == '/';
    }
    return 0;
}

int cp_path_parse(const char *text, struct cp_path *out, struct err *err) {
    struct cp_path p = {0};
    const char *colon = strchr(text, ':');
    size_t id_len = colon != NULL ? (size_t)(colon - text) : 0;

    if (*text == '\0')
        return err_set(err, ERR_INVALID, 0, "a name is empty");
    if (strcmp(text, "-") == 0) {
        p.std = true;
        *out = p;
        return 0;
    }
    if (colon == NULL || memchr(text, '/', id_len) != NULL || text[0] == '.') {
        if (!str_copy(p.path, sizeof(p.path), text))
            return err_set(err, ERR_INVALID, 0, "%.100s…: the name is too long", text);
        cp_path_mark(&p, text);
        *out = p;
        return 0;
    }
    p.remote = true;
    if (id_len == 0 || id_len >= sizeof(p.id))
        return err_set(err, ERR_INVALID, 0, "%.100s: expected ID:/path", text);
    memcpy(p.id, text, id_len);
    if (!str_is_name(p.id))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of a sandbox", p.id);
    cp_path_mark(&p, colon + 1);
    p.into = p.into || colon[1] == '\0';
    snprintf(p.path, sizeof(p.path), "%s", colon[1] == '/' ? "/" : CP_PATH_HOME);
    if (cp_path_clean(&p, colon + 1, err) < 0)
        return -1;
    *out = p;
    return 0;
}

const char *cp_path_base(const struct cp_path *p, char *space, size_t size) {
    size_t len = strlen(p->path), start;

    while (len > 0 && p->path[len - 1] == '/')
        len--;
    for (start = len; start > 0 && p->path[start - 1] != '/';)
        start--;
    len -= start;
    if (p->std || len >= size || (len <= 2 && memcmp(p->path + start, "..", len) == 0))
        len = 0;
    memcpy(space, p->path + start, len);
    space[len] = '\0';
    return space;
}

int cp_path_encode(char *dst, size_t size, const char *path, const char *query, struct err *err) {
    size_t n = strlen(dst);

    for (const char *s = path; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;

        if (n + 4 >= size)
            return err_set(err, ERR_INVALID, 0, "the path is too long");
        if (isalnum(c) || c == '/' || c == '-' || c == '_' || c == '.' || c == '~')
            dst[n++] = (char)c;
        else
            n += (size_t)snprintf(dst + n, size - n, "%%%02X", c);
    }
    if (n + strlen(query) >= size)
        return err_set(err, ERR_INVALID, 0, "the path is too long");
    memcpy(dst + n, query, strlen(query) + 1);
    return 0;
}

int cp_path_url(const struct cp_path *p, const char *kind, const char *query, char *dst,
                size_t size, struct err *err) {
    int head = snprintf(dst, size, "/v1/sandboxes/%s/%s/", p->id, kind);

    if (head < 0 || (size_t)head >= size)
        return err_set(err, ERR_INVALID, 0, "the path is too long");
    return cp_path_encode(dst, size, p->path + 1, query, err);
}

bool cp_path_link_stays(const char *path, const char *target) {
    size_t depth = 0;
    bool down = false;

    if (*target == '/' || *target == '\0')
        return false;
    for (const char *s = path; *s != '\0'; s++)
        depth += *s == '/';
    while (*target != '\0') {
        size_t len = strcspn(target, "/");
        bool up = len == 2 && target[0] == '.' && target[1] == '.';

        if (up && (down || depth == 0))
            return false;
        if (up)
            depth--;
        else if (len > 0 && !(len == 1 && target[0] == '.'))
            down = true;
        target += len;
        target += *target == '/';
    }
    return true;
}

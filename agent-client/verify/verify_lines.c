#include "verify_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Length of the escape sequence at p, 0 when it is none that we know (ECMA-48, xterm's OSC). */
static size_t verify_lines_escape(const char *p, const char *end) {
    if (end - p < 2 || p[0] != '\033')
        return 0;
    const char *q = p + 2;
    if (p[1] == '[') {
        while (q < end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x40)
            q++;
        return q < end ? (size_t)(q + 1 - p) : 0;
    }
    if (p[1] == ']') {
        while (q < end && *q != '\a' && *q != '\n' && !(q[0] == '\033' && q + 1 < end))
            q++;
        if (q < end && *q == '\033' && q[1] == '\\')
            return (size_t)(q + 2 - p);
        return q < end && *q == '\a' ? (size_t)(q + 1 - p) : 0;
    }
    if (p[1] == '(' || p[1] == ')')
        return end - p >= 3 ? 3 : 0;
    return 0;
}

static size_t verify_lines_clean(struct buf *text) {
    const char *p = text->data, *end = text->data + text->len;
    char *to = text->data, *begin = to;
    size_t lines = 1;
    while (p < end) {
        size_t skip = verify_lines_escape(p, end);
        if (skip > 0) {
            p += skip;
        } else if (*p == '\r') {
            if (p + 1 < end && p[1] != '\n' && p[1] != '\r')
                to = begin;
            p++;
        } else {
            char c = *p++;
            *to++ = c == '\0' ? '?' : c;
            if (c == '\n') {
                begin = to;
                lines++;
            }
        }
    }
    text->len = (size_t)(to - text->data);
    return lines;
}

int verify_lines_split(struct buf *text, struct verify_lines *out, struct err *err) {
    if (text->data == NULL) {
        *out = (struct verify_lines){0};
        return 0;
    }
    size_t n = verify_lines_clean(text);
    const char **at = calloc(n, sizeof(*at));
    if (at == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "cutting the output into lines: out of memory");
    size_t count = 0;
    char *p = text->data, *end = text->data + text->len;
    while (p < end) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        at[count++] = p;
        if (stop == NULL)
            stop = end;
        *stop = '\0'; /* at the very end: the NUL that every buf has there */
        p = stop + 1;
    }
    *out = (struct verify_lines){.at = at, .count = count};
    return 0;
}

void verify_lines_done(struct verify_lines *lines) {
    free(lines->at);
    *lines = (struct verify_lines){0};
}

bool verify_lines_after(const char *line, const char *prefix, const char **rest) {
    size_t n = strlen(prefix);
    if (strncmp(line, prefix, n) != 0)
        return false;
    if (rest != NULL)
        *rest = line + n;
    return true;
}

const char *verify_lines_trim(const char *line) {
    return line + strspn(line, " \t");
}

bool verify_lines_number(const char **p, uint64_t *value) {
    const char *q = *p;
    uint64_t v = 0;
    while (*q >= '0' && *q <= '9' && q - *p < 18)
        v = v * 10 + (uint64_t)(*q++ - '0');
    if (q == *p)
        return false;
    *p = q;
    *value = v;
    return true;
}

uint64_t verify_lines_number_before(const char *line, const char *word) {
    size_t n = strlen(word);
    for (const char *p = line; *p != '\0'; p++) {
        uint64_t value = 0;
        const char *q = p;
        if ((p > line && p[-1] >= '0' && p[-1] <= '9') || !verify_lines_number(&q, &value))
            continue;
        q = verify_lines_trim(q);
        unsigned char after = strncmp(q, word, n) == 0 ? (unsigned char)q[n] : 'x';
        if (!(after >= 'a' && after <= 'z') && !(after >= 'A' && after <= 'Z') && after != '_')
            return value;
    }
    return 0;
}

bool verify_lines_place(const char *text, char path[VERIFY_LINES_PATH_SIZE], uint64_t *line) {
    size_t n = strcspn(text, ": \t\n()'\"<>");
    /* A Windows drive letter is no path here. */
    if (n == 0 || n >= VERIFY_LINES_PATH_SIZE || text[n] != ':' ||
        (memchr(text, '.', n) == NULL && memchr(text, '/', n) == NULL))
        return false;
    const char *p = text + n + 1;
    uint64_t value = 0;
    if (!verify_lines_number(&p, &value) || value == 0)
        return false;
    memcpy(path, text, n);
    path[n] = '\0';
    *line = value;
    return true;
}

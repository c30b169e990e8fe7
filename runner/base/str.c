#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool str_copy(char *dst, size_t size, const char *src) {
    size_t len = strlen(src);
    if (len >= size)
        return false;
    memcpy(dst, src, len + 1);
    return true;
}

/* Reads the digits that `text` begins with. -> what follows them, `text` itself when there are
 * none; NULL: the number does not fit. */
static const char *str_digits(const char *text, uint64_t *value) {
    uint64_t v = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return NULL;
    }
    *value = v;
    return text;
}

int str_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value, struct err *err) {
    char shown[48];
    uint64_t v = 0;
    const char *end = str_digits(text, &v);
    if (end != NULL && end != text && *end == '\0' && v >= min && v <= max) {
        *value = v;
        return 0;
    }
    str_escape(shown, sizeof(shown), text, strlen(text));
    return err_set(err, ERR_INVALID, 0,
                   "\"%s\" is not a whole number between %" PRIu64 " and %" PRIu64, shown, min,
                   max);
}

struct str_unit {
    const char *suffix;
    uint64_t factor;
};

/* A number and one suffix of the table, which ends with .suffix == NULL. */
static int str_with_unit(const char *text, const struct str_unit *units, const char *wanted,
                         uint64_t *value, struct err *err) {
    char shown[48];
    uint64_t v = 0;
    const char *end = str_digits(text, &v);
    for (const struct str_unit *u = units; end != NULL && end != text && u->suffix; u++) {
        if (strcmp(end, u->suffix) != 0)
            continue;
        if (__builtin_mul_overflow(v, u->factor, &v))
            break;
        *value = v;
        return 0;
    }
    str_escape(shown, sizeof(shown), text, strlen(text));
    return err_set(err, ERR_INVALID, 0, "\"%s\" is not %s", shown, wanted);
}

int str_bytes(const char *text, uint64_t *bytes, struct err *err) {
    static const struct str_unit units[] = {
        {"", 1},           {"k", 1ULL << 10}, {"K", 1ULL << 10}, {"m", 1ULL << 20},
        {"M", 1ULL << 20}, {"g", 1ULL << 30}, {"G", 1ULL << 30}, {"t", 1ULL << 40},
        {"T", 1ULL << 40}, {NULL, 0},
    };
    return str_with_unit(text, units, "a number of bytes such as 65536, 64k, 256M or 1G", bytes,
                         err);
}

int str_duration_ms(const char *text, uint64_t *ms, struct err *err) {
    static const struct str_unit units[] = {
        {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
    };
    return str_with_unit(text, units, "a duration such as 1500ms, 30s, 5m or 2h", ms, err);
}

uint32_t str_hash(const void *data, size_t len) {
    const unsigned char *p = data;
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}

static bool str_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool str_is_name(const char *text) {
    if (!str_is_word(text[0]))
        return false;
    size_t n = 1;
    for (; text[n]; n++) {
        if (n >= 63 || (!str_is_word(text[n]) && text[n] != '.' && text[n] != '-'))
            return false;
    }
    return true;
}

/* One byte as it is shown; returns the number of characters, 1 or 4. */
static size_t str_escape_byte(char out[4], unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '%') {
        out[0] = (char)c;
        return 1;
    }
    out[0] = '\\';
    out[1] = 'x';
    out[2] = hex[c >> 4];
    out[3] = hex[c & 15];
    return 4;
}

void str_escape(char *dst, size_t size, const void *data, size_t len) {
    if (size == 0)
        return;
    const unsigned char *p = data;
    size_t used = 0;
    size_t cut = 0; /* the last place where "..." still fits */
    for (size_t i = 0; i < len; i++) {
        char one[4];
        size_t n = str_escape_byte(one, p[i]);
        if (used + n >= size) {
            size_t dots = size - 1 - cut < 3 ? size - 1 - cut : 3;
            memcpy(dst + cut, "...", dots);
            dst[cut + dots] = '\0';
            return;
        }
        memcpy(dst + used, one, n);
        used += n;
        if (used + 3 < size)
            cut = used;
    }
    dst[used] = '\0';
}

void str_human_ms(char *dst, size_t size, uint64_t ms) {
    if (ms < 1000)
        snprintf(dst, size, "%" PRIu64 " ms", ms);
    else
        snprintf(dst, size, "%" PRIu64 ".%" PRIu64 " s", ms / 1000, ms % 1000 / 100);
}

void str_human_bytes(char *dst, size_t size, uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(dst, size, "%" PRIu64 " bytes", bytes);
        return;
    }
    size_t u = 0;
    unsigned shift = 10;
    while (u + 1 < sizeof(units) / sizeof(units[0]) && bytes >> shift >= 1024) {
        shift += 10;
        u++;
    }
    uint64_t whole = bytes >> shift;
    uint64_t tenth = (bytes >> (shift - 10) & 1023) * 10 / 1024;
    snprintf(dst, size, "%" PRIu64 ".%" PRIu64 " %s", whole, tenth, units[u]);
}

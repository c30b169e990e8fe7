#include "json_in.h"

#include <string.h>

#include "text.h"

void json_in_init(struct json_in *j, char *json, size_t len) {
    memset(j, 0, sizeof(*j));
    j->json = json;
    j->len = len;
}

static int json_in_fail(struct json_in *j, const char *wrong) {
    j->wrong = wrong;
    return -1;
}

/* The next byte that is not a blank; '\0' at the end. */
static char json_in_next(struct json_in *j) {
    while (j->pos < j->len) {
        char c = j->json[j->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        j->pos++;
    }
    return '\0';
}

enum json_in_type json_in_peek(struct json_in *j) {
    char c = json_in_next(j);
    switch (c) {
    case '{':
        return JSON_IN_OBJECT;
    case '[':
        return JSON_IN_ARRAY;
    case '"':
        return JSON_IN_STRING;
    case 't':
        return JSON_IN_TRUE;
    case 'f':
        return JSON_IN_FALSE;
    case 'n':
        return JSON_IN_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? JSON_IN_NUMBER : JSON_IN_NOTHING;
    }
}

int json_in_open(struct json_in *j, char bracket) {
    if (json_in_next(j) != bracket)
        return json_in_fail(j, bracket == '{' ? "an object is wanted" : "an array is wanted");
    if (j->depth == JSON_IN_DEPTH_MAX)
        return json_in_fail(j, "it is nested too deeply");
    j->pos++;
    j->later[++j->depth] = false;
    return 0;
}

/* 1: at the next member or element; 0: behind the bracket. */
static int json_in_step(struct json_in *j, char close) {
    char c = json_in_next(j);
    if (c == close && j->depth > 0) {
        j->pos++;
        j->depth--;
        return 0;
    }
    if (!j->later[j->depth]) {
        j->later[j->depth] = true;
        return 1;
    }
    if (c != ',')
        return json_in_fail(j, "a comma or a closing bracket is missing");
    j->pos++;
    return 1;
}

int json_in_item(struct json_in *j) {
    return json_in_step(j, ']');
}

int json_in_key(struct json_in *j, const char **key, size_t *len) {
    int rc = json_in_step(j, '}');
    if (rc <= 0)
        return rc;
    if (json_in_string(j, key, len) != 0)
        return -1;
    if (json_in_next(j) != ':')
        return json_in_fail(j, "a colon is missing");
    j->pos++;
    return 1;
}

static int json_in_hex(const char *at, uint32_t *value) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        v <<= 4;
        if (c >= '0' && c <= '9')
            v |= (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            v |= (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    *value = v;
    return 0;
}

static char *json_in_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | (c >> 6));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | (c >> 12));
        *to++ = (char)(0x80 | ((c >> 6) & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | (c >> 18));
        *to++ = (char)(0x80 | ((c >> 12) & 0x3f));
        *to++ = (char)(0x80 | ((c >> 6) & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* \uXXXX at *from (which is at the 'u'), with the second half of a pair. */
static int json_in_unicode(const char **from, const char *end, char **to) {
    uint32_t high, low;
    const char *p = *from + 1;
    if (end - p < 4 || json_in_hex(p, &high) != 0 || high == 0)
        return -1;
    p += 4;
    if (high >= 0xdc00 && high < 0xe000)
        return -1;
    if (high >= 0xd800 && high < 0xdc00) {
        if (end - p < 6 || p[0] != '\\' || p[1] != 'u' || json_in_hex(p + 2, &low) != 0 ||
            low < 0xdc00 || low >= 0xe000)
            return -1;
        p += 6;
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = json_in_utf8(*to, high);
    *from = p;
    return 0;
}

/* One escape; *from is at the backslash. What it means is never longer than what it is. */
static int json_in_escape(const char **from, const char *end, char **to) {
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    const char *p = *from + 1;
    if (p >= end)
        return -1;
    if (*p == 'u') {
        *from = p;
        return json_in_unicode(from, end, to);
    }
    const char *name = *p != '\0' ? strchr(names, *p) : NULL;
    if (!name)
        return -1;
    *(*to)++ = values[name - names];
    *from = p + 1;
    return 0;
}

int json_in_string(struct json_in *j, const char **text, size_t *len) {
    if (json_in_next(j) != '"')
        return json_in_fail(j, "a string is wanted");
    char *start = j->json + j->pos + 1;
    const char *from = start, *end = j->json + j->len;
    bool ascii = true;
    while (from < end && *from != '"' && *from != '\\' && (unsigned char)*from >= 0x20) {
        ascii = ascii && (unsigned char)*from < 0x80;
        from++;
    }
    char *to = start + (from - start);
    while (from < end && *from != '"') {
        if ((unsigned char)*from < 0x20)
            return json_in_fail(j, "a string has a control character in it");
        if (*from != '\\')
            *to++ = *from++;
        else if (json_in_escape(&from, end, &to) != 0)
            return json_in_fail(j, "a string has a bad escape in it (NUL is one)");
        ascii = false;
    }
    if (from >= end)
        return json_in_fail(j, "a string does not end");
    size_t n = (size_t)(to - start);
    if (!ascii && !text_is_utf8(start, n))
        return json_in_fail(j, "a string is not UTF-8");
    *to = '\0'; /* at most where the closing quote is */
    j->pos = (size_t)(from - j->json) + 1;
    *text = start;
    *len = n;
    return 0;
}

int json_in_u64(struct json_in *j, uint64_t *value) {
    uint64_t v = 0;
    (void)json_in_next(j);
    size_t at = j->pos;
    for (; at < j->len && j->json[at] >= '0' && j->json[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(j->json[at] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return json_in_fail(j, "a number is too large");
        v = v * 10 + digit;
    }
    size_t digits = at - j->pos;
    char after = at < j->len ? j->json[at] : '\0';
    if (digits == 0 || after == '.' || after == 'e' || after == 'E' ||
        (digits > 1 && j->json[j->pos] == '0'))
        return json_in_fail(j, "an integer that is not negative is wanted");
    j->pos = at;
    *value = v;
    return 0;
}

int json_in_bool(struct json_in *j, bool *value) {
    char c = json_in_next(j);
    const char *word = c == 't' ? "true" : "false";
    size_t len = strlen(word);
    if (j->len - j->pos < len || memcmp(j->json + j->pos, word, len) != 0)
        return json_in_fail(j, "true or false is wanted");
    j->pos += len;
    *value = c == 't';
    return 0;
}

int json_in_end(struct json_in *j) {
    (void)json_in_next(j);
    return j->pos == j->len ? 0 : json_in_fail(j, "something follows the end");
}

#include "text.h"

#include <jansson.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_KEY_MAX 64
#define TEXT_HIGH_BITS 0x8080808080808080ULL
#define TEXT_ONES 0x0101010101010101ULL

static size_t text_skip_ascii(const unsigned char *p, size_t i, size_t len) {
    while (len - i >= 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        if (word & TEXT_HIGH_BITS)
            break;
        i += 8;
    }
    while (i < len && p[i] < 0x80)
        i++;
    return i;
}

/* Length (2 to 4) that the lead byte announces and the range of the byte after it, which is where
 * overlong forms, surrogates and what is above U+10FFFF are told apart. 0: not a lead byte. */
static size_t text_lead(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0)
            *low = 0xA0;
        else if (lead == 0xED)
            *high = 0x9F;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (lead == 0xF0)
            *low = 0x90;
        else if (lead == 0xF4)
            *high = 0x8F;
        return 4;
    }
    return 0;
}

/* Length of the non-ASCII character at p[0…left), 0 when it is invalid or not whole. */
static size_t text_char(const unsigned char *p, size_t left, bool *incomplete) {
    unsigned char low, high;
    size_t need = text_lead(p[0], &low, &high);
    *incomplete = false;
    if (need == 0)
        return 0;
    if (left >= 2 && (p[1] < low || p[1] > high))
        return 0;
    for (size_t i = 2; i < need && i < left; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if (left < need) {
        *incomplete = true;
        return 0;
    }
    return need;
}

size_t text_utf8_prefix(const void *data, size_t len, bool *incomplete) {
    const unsigned char *p = data;
    bool cut = false;
    size_t i = 0;
    while (i < len) {
        i = text_skip_ascii(p, i, len);
        if (i == len)
            break;
        size_t n = text_char(p + i, len - i, &cut);
        if (n == 0)
            break;
        i += n;
    }
    if (incomplete)
        *incomplete = cut;
    return i;
}

bool text_is_utf8(const void *data, size_t len) {
    return text_utf8_prefix(data, len, NULL) == len;
}

size_t text_utf8_orphans(const void *data, size_t len) {
    const unsigned char *p = data;
    size_t n = 0;
    while (n < 3 && n < len && (p[n] & 0xC0) == 0x80)
        n++;
    return n;
}

size_t text_base64_len(size_t len) {
    return len / 3 * 4 + (len % 3 != 0 ? 4 : 0);
}

/* Not libsodium's: that one takes the same time whatever the bytes are, as keys need, and is too
 * slow for output that streams. */
static void text_base64_write(const unsigned char *p, size_t len, char *dst) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; len >= 3; len -= 3, p += 3) {
        uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        *dst++ = digits[bits >> 18];
        *dst++ = digits[bits >> 12 & 63];
        *dst++ = digits[bits >> 6 & 63];
        *dst++ = digits[bits & 63];
    }
    if (len == 0)
        return;
    uint32_t bits = (uint32_t)p[0] << 16 | (len == 2 ? (uint32_t)p[1] << 8 : 0);
    *dst++ = digits[bits >> 18];
    *dst++ = digits[bits >> 12 & 63];
    *dst++ = len == 2 ? digits[bits >> 6 & 63] : '=';
    *dst++ = '=';
}

int text_base64_encode(const void *data, size_t len, struct buf *out, struct err *err) {
    char *dst = buf_reserve(out, text_base64_len(len), err);
    if (!dst)
        return -1;
    text_base64_write(data, len, dst);
    out->len += text_base64_len(len);
    return 0;
}

int text_base64_decode(const char *text, size_t len, char *dst, size_t *size, struct err *err) {
    size_t written = 0;
    /* libsodium looks skipped characters up with strchr(), which would find a NUL as well. */
    if (memchr(text, 0, len) != NULL ||
        sodium_base642bin((unsigned char *)dst, len / 4 * 3, text, len, "\r\n", &written, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return err_set(err, ERR_INVALID, 0,
                       "not valid base64 (standard alphabet, padded with '=')");
    *size = written;
    return 0;
}

/* A JSON string with the base64 of the bytes, or NULL. */
static json_t *text_base64_json(const void *data, size_t len) {
    size_t size = text_base64_len(len);
    char *text = malloc(size);
    if (!text)
        return NULL;
    text_base64_write(data, len, text);
    json_t *value = json_stringn_nocheck(text, size);
    free(text);
    return value;
}

/* "<key>_encoding"; false when it does not fit. */
static bool text_encoding_key(char name[TEXT_KEY_MAX], const char *key) {
    int n = snprintf(name, TEXT_KEY_MAX, "%s_encoding", key);
    return n > 0 && n < TEXT_KEY_MAX;
}

int text_to_json(json_t *object, const char *key, const void *data, size_t len) {
    char name[TEXT_KEY_MAX];
    if (!text_encoding_key(name, key))
        return -1;
    bool utf8 = text_is_utf8(data, len);
    json_t *value = utf8 ? json_stringn_nocheck(len ? data : "", len) : text_base64_json(data, len);
    if (!value || json_object_set_new_nocheck(object, key, value) != 0)
        return -1;
    return json_object_set_new_nocheck(object, name,
                                       json_string_nocheck(utf8 ? "utf-8" : "base64"));
}

int text_from_json(const json_t *object, const char *key, struct buf *out, struct err *err) {
    char name[TEXT_KEY_MAX];
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || !text_encoding_key(name, key))
        return err_set(err, ERR_INVALID, 0, "%s is not a string", key);
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    const json_t *encoding = json_object_get(object, name);
    const char *word = encoding ? json_string_value(encoding) : "utf-8";
    if (word && strcmp(word, "utf-8") == 0)
        return buf_append(out, text, len, err);
    if (!word || strcmp(word, "base64") != 0)
        return err_set(err, ERR_INVALID, 0, "%s is neither utf-8 nor base64", name);
    char *dst = buf_reserve(out, len / 4 * 3, err);
    size_t size = 0;
    if (!dst)
        return -1;
    int rc = text_base64_decode(text, len, dst, &size, err);
    if (rc == 0)
        out->len += size;
    out->data[out->len] = '\0';
    return rc == 0 ? 0 : err_wrap(err, "%s", key);
}

static bool text_needs_escape(unsigned char c) {
    return c < 0x20 || c == '"' || c == '\\';
}

static uint64_t text_zero_bytes(uint64_t word) {
    return (word - TEXT_ONES) & ~word & TEXT_HIGH_BITS;
}

/* Index of the first byte at or after i that JSON wants escaped. */
static size_t text_plain_run(const unsigned char *p, size_t i, size_t len) {
    while (len - i >= 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        uint64_t below = (word - TEXT_ONES * 0x20) & ~word & TEXT_HIGH_BITS;
        if (below | text_zero_bytes(word ^ (TEXT_ONES * '"')) |
            text_zero_bytes(word ^ (TEXT_ONES * '\\')))
            break;
        i += 8;
    }
    while (i < len && !text_needs_escape(p[i]))
        i++;
    return i;
}

/* What stands for a byte that needs escaping; read and written eight bytes at a time. */
struct text_escape {
    char text[7];
    uint8_t len;
};
#define TEXT_ESCAPE_MAX 6u /* bytes of \u00XX */
#define TEXT_ESCAPES 256u  /* that are written at once */
#define TEXT_U(high, low)                                                                          \
    { "\\u00" high low, TEXT_ESCAPE_MAX }
#define TEXT_C(letter)                                                                             \
    { "\\" letter, 2 }

static const struct text_escape text_escapes[0x20] = {
    TEXT_U("0", "0"), TEXT_U("0", "1"), TEXT_U("0", "2"), TEXT_U("0", "3"), TEXT_U("0", "4"),
    TEXT_U("0", "5"), TEXT_U("0", "6"), TEXT_U("0", "7"), TEXT_C("b"),      TEXT_C("t"),
    TEXT_C("n"),      TEXT_U("0", "b"), TEXT_C("f"),      TEXT_C("r"),      TEXT_U("0", "e"),
    TEXT_U("0", "f"), TEXT_U("1", "0"), TEXT_U("1", "1"), TEXT_U("1", "2"), TEXT_U("1", "3"),
    TEXT_U("1", "4"), TEXT_U("1", "5"), TEXT_U("1", "6"), TEXT_U("1", "7"), TEXT_U("1", "8"),
    TEXT_U("1", "9"), TEXT_U("1", "a"), TEXT_U("1", "b"), TEXT_U("1", "c"), TEXT_U("1", "d"),
    TEXT_U("1", "e"), TEXT_U("1", "f"),
};
static const struct text_escape text_quote = TEXT_C("\""), text_backslash = TEXT_C("\\");

/* Escapes the bytes at *i that need it, TEXT_ESCAPES at most, into `dst`, which has room for one
 * entry of the table more; moves *i behind them and returns the length. */
static size_t text_escape_run(const unsigned char *p, size_t *i, size_t len, char *dst) {
    size_t used = 0, at = *i, end = len - at > TEXT_ESCAPES ? at + TEXT_ESCAPES : len;
    for (; at < end && text_needs_escape(p[at]); at++) {
        const struct text_escape *e = p[at] < 0x20   ? &text_escapes[p[at]]
                                      : p[at] == '"' ? &text_quote
                                                     : &text_backslash;
        memcpy(dst + used, e, sizeof(*e));
        used += e->len;
    }
    *i = at;
    return used;
}

int text_append_json(struct buf *out, const void *data, size_t len, struct err *err) {
    const unsigned char *p = data;
    size_t start = out->len;
    if (buf_append(out, "\"", 1, err) != 0)
        return -1;
    for (size_t i = 0; i < len;) {
        size_t end = text_plain_run(p, i, len);
        char escapes[TEXT_ESCAPES * TEXT_ESCAPE_MAX + sizeof(struct text_escape)];
        if (buf_append(out, p + i, end - i, err) != 0)
            goto fail;
        i = end;
        size_t n = text_escape_run(p, &i, len, escapes);
        if (buf_append(out, escapes, n, err) != 0)
            goto fail;
    }
    if (buf_append(out, "\"", 1, err) == 0)
        return 0;
fail:
    out->len = start;
    out->data[start] = '\0';
    return -1;
}

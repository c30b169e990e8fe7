#include "traceparent.h"

#include <string.h>

#define TRACEPARENT_LEN (TRACEPARENT_TEXT - 1)
#define TRACEPARENT_MEMBERS 32
#define TRACEPARENT_KEY 256
#define TRACEPARENT_VALUE 256

static int traceparent_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool traceparent_unhex(const char *text, uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        int high = traceparent_digit(text[2 * i]);
        int low = high < 0 ? -1 : traceparent_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static bool traceparent_is_zero(const uint8_t *bytes, size_t len) {
    uint8_t all = 0;
    for (size_t i = 0; i < len; i++)
        all |= bytes[i];
    return all == 0;
}

bool traceparent_parse_id(const char *text, uint8_t id[TRACEPARENT_ID]) {
    uint8_t bytes[TRACEPARENT_ID];
    if (!traceparent_unhex(text, bytes, sizeof(bytes)) || text[2 * sizeof(bytes)] != '\0' ||
        traceparent_is_zero(bytes, sizeof(bytes)))
        return false;
    memcpy(id, bytes, sizeof(bytes));
    return true;
}

static size_t traceparent_trim(const char **text) {
    *text += strspn(*text, " \t");
    size_t len = strlen(*text);
    while (len > 0 && ((*text)[len - 1] == ' ' || (*text)[len - 1] == '\t'))
        len--;
    return len;
}

bool traceparent_parse(const char *text, struct traceparent *out) {
    struct traceparent t;
    uint8_t version = 0, flags = 0;
    size_t len = traceparent_trim(&text);
    if (len < TRACEPARENT_LEN || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
        !traceparent_unhex(text, &version, 1) || !traceparent_unhex(text + 3, t.id, sizeof(t.id)) ||
        !traceparent_unhex(text + 36, t.span, sizeof(t.span)) ||
        !traceparent_unhex(text + 53, &flags, 1))
        return false;
    if (version == 0xff || (version == 0 && len != TRACEPARENT_LEN) ||
        (len > TRACEPARENT_LEN && text[TRACEPARENT_LEN] != '-'))
        return false;
    if (traceparent_is_zero(t.id, sizeof(t.id)) || traceparent_is_zero(t.span, sizeof(t.span)))
        return false;
    *out = t;
    return true;
}

void traceparent_hex(const uint8_t *bytes, size_t len, char *text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * len] = '\0';
}

void traceparent_write(const struct traceparent *t, char text[TRACEPARENT_TEXT]) {
    memcpy(text, "00-", 3);
    traceparent_hex(t->id, sizeof(t->id), text + 3);
    text[35] = '-';
    traceparent_hex(t->span, sizeof(t->span), text + 36);
    memcpy(text + 52, "-01", 4);
}

/* tracestate. */

static bool traceparent_key_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '*' ||
           c == '/';
}

/* "vendor" begins with a letter; "tenant@system": the tenant (241) may begin with a digit, the
 * system (14) may not. */
static bool traceparent_key_ok(const char *key, size_t len) {
    const char *at = memchr(key, '@', len);
    size_t tenant = at != NULL ? (size_t)(at - key) : 0;
    const char *name = at != NULL ? at + 1 : key;
    size_t name_len = at != NULL ? len - tenant - 1 : len;
    if (len == 0 || len > TRACEPARENT_KEY || name_len == 0 || name[0] < 'a' || name[0] > 'z')
        return false;
    if (at != NULL && (tenant == 0 || tenant > 241 || name_len > 14 || key[0] == '_' ||
                       key[0] == '-' || key[0] == '*' || key[0] == '/'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (key + i != at && !traceparent_key_char(key[i]))
            return false;
    return true;
}

/* Printable, without '=' (the comma has ended it); the last character is no blank. */
static bool traceparent_value_ok(const char *value, size_t len) {
    if (len == 0 || len > TRACEPARENT_VALUE || value[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++)
        if (value[i] < 0x20 || value[i] > 0x7e || value[i] == '=')
            return false;
    return true;
}

static bool traceparent_member_ok(const char *member, size_t len) {
    const char *equals = memchr(member, '=', len);
    if (equals == NULL)
        return false;
    size_t key = (size_t)(equals - member);
    return traceparent_key_ok(member, key) && traceparent_value_ok(equals + 1, len - key - 1);
}

bool traceparent_state_ok(const char *text) {
    size_t members = 0;
    if (strnlen(text, TRACEPARENT_STATE_MAX + 1) > TRACEPARENT_STATE_MAX)
        return false;
    while (*text != '\0') {
        size_t whole = strcspn(text, ","), len = whole;
        const char *member = text;
        while (len > 0 && (*member == ' ' || *member == '\t')) {
            member++;
            len--;
        }
        while (len > 0 && (member[len - 1] == ' ' || member[len - 1] == '\t'))
            len--;
        /* Empty members are allowed. */
        if (len > 0 && (++members > TRACEPARENT_MEMBERS || !traceparent_member_ok(member, len)))
            return false;
        text += whole;
        if (*text == ',')
            text++;
    }
    return members > 0;
}

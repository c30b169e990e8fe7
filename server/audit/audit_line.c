#include "audit_line.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "receipt.h"

#define AUDIT_LINE_PREV ",\"prev\":\""
#define AUDIT_LINE_HASH ",\"hash\":\""
#define AUDIT_LINE_KEY (sizeof(AUDIT_LINE_HASH) - 1)
#define AUDIT_LINE_HEX 64u
/* `,"prev":"…"` and `,"hash":"…"}` */
#define AUDIT_LINE_PREV_LEN (AUDIT_LINE_KEY + AUDIT_LINE_HEX + 1)
#define AUDIT_LINE_HASH_LEN (AUDIT_LINE_KEY + AUDIT_LINE_HEX + 2)
/* `{"seq":…,"time":…,` at most */
#define AUDIT_LINE_FRONT 64u

void audit_line_genesis(const char *chain, struct audit_mark *out) {
    char text[64];
    int n = snprintf(text, sizeof(text), "pinfold audit %s", chain);
    crypto_hash_sha256(out->hash, (const unsigned char *)text, (unsigned)n);
    out->seq = 0;
}

/* Of the line up to `len`, and of the brace that the member `hash` stands before. */
static void audit_line_digest(const char *line, size_t len, uint8_t hash[32]) {
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const unsigned char *)line, len);
    crypto_hash_sha256_update(&state, (const unsigned char *)"}", 1);
    crypto_hash_sha256_final(&state, hash);
}

int audit_line_compose(struct buf *out, struct audit_mark *last, uint64_t time_ms,
                       const struct buf *fields, struct err *err) {
    char front[AUDIT_LINE_FRONT], back[AUDIT_LINE_PREV_LEN + AUDIT_LINE_HASH_LEN + 2];
    uint8_t hash[32];
    size_t start = out->len;
    int n = snprintf(front, sizeof(front), "{\"seq\":%" PRIu64 ",\"time\":%" PRIu64 ",",
                     last->seq + 1, time_ms);
    if (fields->len + (size_t)n + sizeof(back) > AUDIT_LINE_MAX)
        return err_set(err, ERR_LIMIT, 0, "a record of the audit log is too long");
    memcpy(back, AUDIT_LINE_PREV, AUDIT_LINE_KEY);
    receipt_hex(last->hash, sizeof(last->hash), back + AUDIT_LINE_KEY);
    back[AUDIT_LINE_PREV_LEN - 1] = '"';
    if (buf_append(out, front, (size_t)n, err) < 0 ||
        buf_append(out, fields->data, fields->len, err) < 0 ||
        buf_append(out, back, AUDIT_LINE_PREV_LEN, err) < 0)
        goto fail;
    audit_line_digest(out->data + start, out->len - start, hash);
    memcpy(back, AUDIT_LINE_HASH, AUDIT_LINE_KEY);
    receipt_hex(hash, sizeof(hash), back + AUDIT_LINE_KEY);
    memcpy(back + AUDIT_LINE_KEY + AUDIT_LINE_HEX, "\"}\n", 3);
    if (buf_append(out, back, AUDIT_LINE_HASH_LEN + 1, err) < 0)
        goto fail;
    last->seq++;
    memcpy(last->hash, hash, sizeof(hash));
    return 0;
fail:
    out->len = start;
    if (out->data != NULL)
        out->data[start] = '\0';
    return -1;
}

/* `"name":digits,` at *p. */
static int audit_line_number(const char **p, const char *end, const char *name, uint64_t *value) {
    size_t len = strlen(name);
    uint64_t v = 0;
    unsigned digits = 0;
    if ((size_t)(end - *p) < len || memcmp(*p, name, len) != 0)
        return -1;
    for (*p += len; *p < end && **p >= '0' && **p <= '9' && digits < 19; (*p)++, digits++)
        v = v * 10 + (uint64_t)(**p - '0');
    if (digits == 0 || *p == end || **p != ',')
        return -1;
    (*p)++;
    *value = v;
    return 0;
}

static int audit_line_hash_at(const char *at, const char *key, uint8_t out[32]) {
    char hex[AUDIT_LINE_HEX + 1];
    if (memcmp(at, key, AUDIT_LINE_KEY) != 0)
        return -1;
    memcpy(hex, at + AUDIT_LINE_KEY, AUDIT_LINE_HEX);
    hex[AUDIT_LINE_HEX] = '\0';
    return receipt_unhex(hex, out, 32);
}

int audit_line_parse(const char *line, size_t len, struct audit_line *out) {
    struct audit_line l = {0};
    uint8_t hash[32];
    if (len < AUDIT_LINE_PREV_LEN + AUDIT_LINE_HASH_LEN || len >= AUDIT_LINE_MAX)
        return -1;
    size_t body = len - AUDIT_LINE_HASH_LEN, prev = body - AUDIT_LINE_PREV_LEN;
    const char *p = line;
    if (memcmp(line + len - 2, "\"}", 2) != 0 || line[body - 1] != '"' ||
        audit_line_hash_at(line + body, AUDIT_LINE_HASH, l.hash) < 0 ||
        audit_line_hash_at(line + prev, AUDIT_LINE_PREV, l.prev) < 0 ||
        audit_line_number(&p, line + prev, "{\"seq\":", &l.seq) < 0 ||
        audit_line_number(&p, line + prev, "\"time\":", &l.time_ms) < 0)
        return -1;
    audit_line_digest(line, body, hash);
    l.sound = memcmp(hash, l.hash, sizeof(hash)) == 0;
    *out = l;
    return 0;
}

size_t audit_line_message(const char *chain, const struct audit_mark *mark, bool pruned,
                          char message[AUDIT_LINE_MESSAGE_MAX]) {
    char hex[AUDIT_LINE_HEX + 1];
    receipt_hex(mark->hash, sizeof(mark->hash), hex);
    int n = snprintf(message, AUDIT_LINE_MESSAGE_MAX, "pinfold audit 1\n%s%s %" PRIu64 " %s",
                     pruned ? "pruned " : "", chain, mark->seq, hex);
    return (size_t)n;
}

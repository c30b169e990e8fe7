#include "receipt.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define RECEIPT_PREFIX "pinfold receipt 1\n"
#define RECEIPT_DEPTH_MAX 16
#define RECEIPT_BODY_MAX ((size_t)64 * 1024 * 1024)

void receipt_hex(const uint8_t *bytes, size_t len, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * len] = '\0';
}

static int receipt_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int receipt_unhex(const char *text, uint8_t *out, size_t len) {
    if (text == NULL || strlen(text) != 2 * len)
        return -1;
    for (size_t i = 0; i < 2 * len; i++)
        if (receipt_digit(text[i]) < 0)
            return -1;
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)(receipt_digit(text[2 * i]) * 16 + receipt_digit(text[2 * i + 1]));
    return 0;
}

void receipt_key_id(const struct receipt_public *key, char id[RECEIPT_KEY_ID_SIZE]) {
    uint8_t hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, key->bytes, sizeof(key->bytes));
    receipt_hex(hash, (RECEIPT_KEY_ID_SIZE - 1) / 2, id);
}

int receipt_key_parse(const char *text, size_t len, struct receipt_public *out, struct err *err) {
    char digits[2 * RECEIPT_PUBLIC_SIZE + 1];
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    while (len > 0 && isspace((unsigned char)*text)) {
        text++;
        len--;
    }
    if (len == sizeof(digits) - 1) {
        memcpy(digits, text, len);
        digits[len] = '\0';
        for (char *c = digits; *c != '\0'; c++)
            *c = (char)tolower((unsigned char)*c);
        if (receipt_unhex(digits, out->bytes, sizeof(out->bytes)) == 0)
            return 0;
    }
    return err_set(err, ERR_INVALID, 0, "a public key has 64 hexadecimal digits");
}

/* Canonical form. */

static int receipt_put(const json_t *value, struct buf *out, unsigned depth, struct err *err);

static int receipt_compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int receipt_put_members(const json_t *object, const char **keys, size_t count,
                               struct buf *out, unsigned depth, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        if ((i > 0 && buf_puts(out, ",", err) < 0) ||
            text_append_json(out, keys[i], strlen(keys[i]), err) < 0 || buf_puts(out, ":", err) < 0)
            return -1;
        if (receipt_put(json_object_get(object, keys[i]), out, depth, err) < 0)
            return -1;
    }
    return 0;
}

static int receipt_put_object(const json_t *object, struct buf *out, unsigned depth,
                              struct err *err) {
    size_t count = json_object_size(object), n = 0;
    const char **keys = calloc(count + 1, sizeof(*keys));
    const char *key;
    json_t *value;
    if (keys == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) keys[n++] = key;
    qsort(keys, count, sizeof(*keys), receipt_compare_keys);
    int rc = buf_puts(out, "{", err);
    if (rc == 0)
        rc = receipt_put_members(object, keys, count, out, depth, err);
    if (rc == 0)
        rc = buf_puts(out, "}", err);
    free(keys);
    return rc;
}

static int receipt_put_array(const json_t *array, struct buf *out, unsigned depth,
                             struct err *err) {
    if (buf_puts(out, "[", err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(array); i++)
        if ((i > 0 && buf_puts(out, ",", err) < 0) ||
            receipt_put(json_array_get(array, i), out, depth, err) < 0)
            return -1;
    return buf_puts(out, "]", err);
}

static int receipt_put(const json_t *value, struct buf *out, unsigned depth, struct err *err) {
    if (depth == 0)
        return err_set(err, ERR_INVALID, 0, "the receipt is nested too deeply");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return receipt_put_object(value, out, depth - 1, err);
    case JSON_ARRAY:
        return receipt_put_array(value, out, depth - 1, err);
    case JSON_STRING:
        return text_append_json(out, json_string_value(value), json_string_length(value), err);
    case JSON_INTEGER:
        return buf_printf(out, err, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    default:
        return err_set(err, ERR_INVALID, 0,
                       "the receipt holds something besides strings and whole numbers");
    }
}

int receipt_canonical(const json_t *value, struct buf *out, struct err *err) {
    return receipt_put(value, out, RECEIPT_DEPTH_MAX, err);
}

/* Signatures. */

void receipt_message(const void *body, size_t len, char message[RECEIPT_MESSAGE_SIZE]) {
    uint8_t hash[crypto_hash_sha512_BYTES];
    crypto_hash_sha512(hash, body, len);
    memcpy(message, RECEIPT_PREFIX, sizeof(RECEIPT_PREFIX) - 1);
    receipt_hex(hash, sizeof(hash), message + sizeof(RECEIPT_PREFIX) - 1);
}

static int receipt_check_body(const json_t *body, const uint8_t *signature,
                              const struct receipt_public *key, struct err *err) {
    char message[RECEIPT_MESSAGE_SIZE], id[RECEIPT_KEY_ID_SIZE];
    const char *named = json_string_value(json_object_get(body, "key"));
    struct buf text;
    if (json_integer_value(json_object_get(body, "receipt")) != RECEIPT_VERSION)
        return err_set(err, ERR_INVALID, 0, "this is not a receipt of version %d", RECEIPT_VERSION);
    receipt_key_id(key, id);
    if (named == NULL || strcmp(named, id) != 0)
        return err_set(err, ERR_INVALID, 0, "the receipt names another key than the one given (%s)",
                       id);
    buf_init(&text, RECEIPT_BODY_MAX);
    int rc = receipt_canonical(body, &text, err);
    if (rc == 0)
        receipt_message(text.data, text.len, message);
    buf_done(&text);
    if (rc == 0 && crypto_sign_verify_detached(signature, (const unsigned char *)message,
                                               RECEIPT_MESSAGE_SIZE - 1, key->bytes) != 0)
        rc = err_set(err, ERR_INVALID, 0,
                     "the signature does not fit: the receipt was changed, or another key made it");
    return rc;
}

int receipt_check(const json_t *receipt, const struct receipt_public *key, struct err *err) {
    uint8_t signature[RECEIPT_SIGNATURE_SIZE];
    const json_t *body = json_object_get(receipt, "body");
    const char *text = json_string_value(json_object_get(receipt, "signature"));
    if (!json_is_object(body) || text == NULL)
        return err_set(err, ERR_INVALID, 0, "there is no receipt (an object with body, signature)");
    if (receipt_unhex(text, signature, sizeof(signature)) < 0)
        return err_set(err, ERR_INVALID, 0, "the signature is not 128 hexadecimal digits");
    return receipt_check_body(body, signature, key, err);
}

/* Files. */

static int receipt_compare_files(const void *a, const void *b) {
    const struct receipt_file *x = a, *y = b;
    size_t len = x->path_len < y->path_len ? x->path_len : y->path_len;
    int order = memcmp(x->path, y->path, len);
    if (order != 0)
        return order;
    return x->path_len < y->path_len ? -1 : x->path_len > y->path_len;
}

void receipt_files_sort(struct receipt_file *files, size_t count) {
    if (count > 1)
        qsort(files, count, sizeof(*files), receipt_compare_files);
}

void receipt_files_root(const struct receipt_file *files, size_t count, uint8_t root[32]) {
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < count; i++) {
        const struct receipt_file *f = &files[i];
        char line[128], hex[65];
        receipt_hex(f->sha256, sizeof(f->sha256), hex);
        int n = f->error != NULL
                    ? snprintf(line, sizeof(line), "error %.60s ", f->error)
                    : snprintf(line, sizeof(line), "%04o %" PRIu64 " %s ", f->mode, f->size, hex);
        crypto_hash_sha256_update(&state, (const unsigned char *)line, (unsigned)n);
        crypto_hash_sha256_update(&state, (const unsigned char *)f->path, f->path_len);
        crypto_hash_sha256_update(&state, (const unsigned char *)"", 1);
    }
    crypto_hash_sha256_final(&state, root);
}

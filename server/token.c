#include "token.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"

_Static_assert(crypto_hash_sha256_BYTES == TOKEN_HASH_SIZE, "SHA-256 is 32 bytes");

static const char token_alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

int token_new(char text[TOKEN_TEXT_LEN + 1], struct err *err) {
    uint8_t random[TOKEN_HASH_SIZE];
    size_t prefix = strlen(TOKEN_PREFIX);
    size_t pos = prefix;
    unsigned bits = 0, held = 0;

    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "the random number generator could not be started");
    randombytes_buf(random, sizeof(random));
    memcpy(text, TOKEN_PREFIX, prefix);
    for (size_t i = 0; i < sizeof(random); i++) {
        held = (held << 8) | random[i];
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            text[pos++] = token_alphabet[(held >> bits) & 31];
        }
        held &= 31;
    }
    text[pos++] = token_alphabet[(held << (5 - bits)) & 31];
    text[pos] = '\0';
    sodium_memzero(random, sizeof(random));
    sodium_memzero(&held, sizeof(held));
    return 0;
}

void token_wipe(void *data, size_t size) {
    sodium_memzero(data, size);
}

bool token_is_form(const char *text, size_t len) {
    size_t prefix = strlen(TOKEN_PREFIX);

    if (len != TOKEN_TEXT_LEN || memcmp(text, TOKEN_PREFIX, prefix) != 0)
        return false;
    for (size_t i = prefix; i < len; i++)
        if (text[i] == '\0' || strchr(token_alphabet, text[i]) == NULL)
            return false;
    return true;
}

void token_hash(const char *text, size_t len, struct token_hash *out) {
    crypto_hash_sha256(out->bytes, (const unsigned char *)text, len);
}

bool token_equal(const struct token_hash *a, const struct token_hash *b) {
    return sodium_memcmp(a->bytes, b->bytes, TOKEN_HASH_SIZE) == 0;
}

int token_record_format(const struct token_record *record, char line[TOKEN_LINE_SIZE],
                        struct err *err) {
    char hex[2 * TOKEN_HASH_SIZE + 1];

    if (!str_is_name(record->name))
        return err_set(err, ERR_INVALID, 0, "a token's name is up to 63 letters, digits, _ . -");
    sodium_bin2hex(hex, sizeof(hex), record->hash.bytes, TOKEN_HASH_SIZE);
    snprintf(line, TOKEN_LINE_SIZE, "%s %s %s\n", hex, record->name,
             record->admin ? "admin" : "user");
    return 0;
}

/* Splits "hash name role" (NUL-terminated, writable). */
static bool token_parse_line(char *line, struct token_record *out) {
    char *save = NULL;
    const char *hex = strtok_r(line, " ", &save);
    const char *name = strtok_r(NULL, " ", &save);
    const char *role = strtok_r(NULL, " ", &save);
    size_t got = 0;

    if (hex == NULL || name == NULL || role == NULL || strtok_r(NULL, " ", &save) != NULL)
        return false;
    if (strlen(hex) != 2 * TOKEN_HASH_SIZE ||
        sodium_hex2bin(out->hash.bytes, TOKEN_HASH_SIZE, hex, strlen(hex), NULL, &got, NULL) != 0 ||
        got != TOKEN_HASH_SIZE)
        return false;
    if (!str_is_name(name) || !str_copy(out->name, sizeof(out->name), name))
        return false;
    out->admin = strcmp(role, "admin") == 0;
    return out->admin || strcmp(role, "user") == 0;
}

static int token_parse_into(const char *text, size_t size, struct token_list *list,
                            struct err *err) {
    unsigned number = 0;

    for (size_t pos = 0; pos < size;) {
        const char *end = memchr(text + pos, '\n', size - pos);
        size_t len = end != NULL ? (size_t)(end - (text + pos)) : size - pos;
        char line[TOKEN_LINE_SIZE];

        number++;
        if (len >= sizeof(line))
            return err_set(err, ERR_INVALID, 0, "line %u is too long", number);
        memcpy(line, text + pos, len);
        line[len] = '\0';
        pos += len + 1;
        if (len == 0 || line[0] == '#')
            continue;
        if (list->count == TOKEN_LIST_MAX)
            return err_set(err, ERR_LIMIT, 0, "more than %d tokens", TOKEN_LIST_MAX);
        if (strlen(line) != len || !token_parse_line(line, &list->items[list->count]))
            return err_set(err, ERR_INVALID, 0, "line %u is not \"SHA256 NAME admin|user\"",
                           number);
        list->count++;
    }
    return 0;
}

int token_list_parse(const char *text, size_t size, struct token_list *out, struct err *err) {
    struct token_list list = {0};
    size_t lines = 1;

    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    if (lines > TOKEN_LIST_MAX)
        lines = TOKEN_LIST_MAX;
    list.items = calloc(lines, sizeof(*list.items));
    if (list.items == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the list of tokens");
    if (token_parse_into(text, size, &list, err) < 0) {
        token_list_done(&list);
        return -1;
    }
    *out = list;
    return 0;
}

void token_list_done(struct token_list *list) {
    if (list == NULL)
        return;
    free(list->items);
    *list = (struct token_list){0};
}

const struct token_record *token_list_find(const struct token_list *list, const char *text,
                                           size_t len) {
    const struct token_record *found = NULL;
    struct token_hash hash;

    token_hash(text, len, &hash);
    for (size_t i = 0; i < list->count; i++)
        if (token_equal(&list->items[i].hash, &hash))
            found = &list->items[i];
    sodium_memzero(&hash, sizeof(hash));
    return found;
}

/* API tokens: their text, their hash, and the file that lists the hashes.
 *
 * A token is shown once, to the person who made it; the server keeps only its SHA-256. The token
 * itself has 256 random bits, so an unsalted hash gives nothing away. Its text never goes into a
 * log, an error or an argument vector.
 *
 * The file STATE/server/tokens has one line per token: 64 hex digits of the hash, a name, a role
 * ("admin" or "user"), separated by single blanks. Lines that start with '#' are comments. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define TOKEN_PREFIX "pf_"
#define TOKEN_TEXT_LEN 55 /* "pf_" and 52 of [a-z2-7] */
#define TOKEN_HASH_SIZE 32
#define TOKEN_NAME_SIZE 64 /* NUL included */
#define TOKEN_LIST_MAX 4096

struct token_hash {
    uint8_t bytes[TOKEN_HASH_SIZE];
};

struct token_record {
    struct token_hash hash;
    char name[TOKEN_NAME_SIZE];
    bool admin;
};

struct token_list {
    struct token_record *items; /* owned */
    size_t count;
};

/* Makes a fresh token (libsodium's generator) and writes its text, NUL-terminated. The caller wipes
 * `text` with token_wipe() when it is done with it. */
int token_new(char text[TOKEN_TEXT_LEN + 1], struct err *err);
/* Overwrites bytes in a way that the compiler keeps. */
void token_wipe(void *data, size_t size);

/* Does `text` have the form of a token? Says nothing about whether it is known. */
bool token_is_form(const char *text, size_t len);

/* SHA-256 of a token's text (any bytes, any length). */
void token_hash(const char *text, size_t len, struct token_hash *out);
/* Equality in a time that does not depend on the contents. */
bool token_equal(const struct token_hash *a, const struct token_hash *b);

/* Appends one line with its newline to `line` (at least TOKEN_LINE_SIZE bytes). ERR_INVALID when
 * the record's name is not a name. Returns 0 and the text is NUL-terminated. */
#define TOKEN_LINE_SIZE 160
int token_record_format(const struct token_record *record, char line[TOKEN_LINE_SIZE],
                        struct err *err);

/* Parses the whole file. ERR_INVALID names the line number, never its contents. On success the
 * caller owns *out (token_list_done()); on failure *out is untouched. */
int token_list_parse(const char *text, size_t size, struct token_list *out, struct err *err);
void token_list_done(struct token_list *list); /* NULL and zeroed allowed */
/* Looks `text` up: compares with every entry, whether or not one matched before. -> borrowed, or
 * NULL when unknown. */
const struct token_record *token_list_find(const struct token_list *list, const char *text,
                                           size_t len);

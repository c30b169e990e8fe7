#include "file_move.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "json_memory.h"
#include "str.h"
#include "text.h"

/* Two paths of which every byte is written as \u00XX, and the rest. */
#define FILE_MOVE_BODY_MAX (14u * FILE_PATH_SIZE)

static int file_move_bad(struct api_error *error, const char *field, const char *must) {
    return api_error_set(error, 400, "bad_request", field, "%s %s.", field + 1, must);
}

/* The field as bytes, NUL-terminated. */
static int file_move_text(const json_t *value, const char *field, bool base64, char *text,
                          size_t size, struct api_error *error) {
    const char *from = json_string_value(value);
    size_t len = json_string_length(value);
    if (from == NULL || from[0] != '/')
        if (from == NULL || !base64)
            return file_move_bad(error, field, "must be an absolute path");
    if (!base64)
        return str_copy(text, size, from) ? 0 : file_move_bad(error, field, "is too long");
    if (len / 4 * 3 >= size)
        return file_move_bad(error, field, "is too long");
    if (text_base64_decode(from, len, text, &len, NULL) < 0 || memchr(text, '\0', len) != NULL ||
        len == 0 || text[0] != '/')
        return file_move_bad(error, field, "must be an absolute path in base64");
    text[len] = '\0';
    return 0;
}

static int file_move_path(const json_t *root, const char *field, const char *field_base64,
                          char path[FILE_PATH_SIZE], struct api_error *error) {
    char text[FILE_PATH_SIZE + 8];
    const json_t *plain = json_object_get(root, field + 1);
    const json_t *coded = json_object_get(root, field_base64 + 1);
    if ((plain != NULL) == (coded != NULL))
        return file_move_bad(error, field, "or its base64 form must be given, and not both");
    if (file_move_text(plain != NULL ? plain : coded, plain != NULL ? field : field_base64,
                       coded != NULL, text, sizeof(text), error) < 0 ||
        file_path_clean(text, path, error) < 0) {
        str_copy(error->field, sizeof(error->field), plain != NULL ? field : field_base64);
        return -1;
    }
    return 0;
}

static int file_move_known(const json_t *root, struct api_error *error) {
    static const char *const names[] = {"from", "from_base64", "to", "to_base64", "replace"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            known = known || strcmp(key, names[i]) == 0;
        if (!known) {
            char field[API_ERROR_FIELD_MAX] = "/";
            str_escape(field + 1, sizeof(field) - 1, key, strlen(key));
            return api_error_set(error, 400, "unknown_field", field, "There is no field %s.",
                                 field + 1);
        }
    }
    return 0;
}

static int file_move_read(const json_t *root, char from[FILE_PATH_SIZE], char to[FILE_PATH_SIZE],
                          bool *replace, struct api_error *error) {
    const json_t *value = json_object_get(root, "replace");
    if (!json_is_object(root))
        return api_error_set(error, 400, "bad_request", NULL, "The body must be a JSON object.");
    if (file_move_known(root, error) < 0 ||
        file_move_path(root, "/from", "/from_base64", from, error) < 0 ||
        file_move_path(root, "/to", "/to_base64", to, error) < 0)
        return -1;
    if (value != NULL && !json_is_boolean(value))
        return file_move_bad(error, "/replace", "must be true or false");
    *replace = json_is_true(value);
    return 0;
}

int file_move_decode(const char *body, size_t len, char from[FILE_PATH_SIZE],
                     char to[FILE_PATH_SIZE], bool *replace, struct api_error *error) {
    if (len > FILE_MOVE_BODY_MAX)
        return api_error_set(error, 413, "too_large", NULL, "The body has too many bytes.");
    json_error_t why;
    json_t *root = json_memory_load(body, len, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL && errno == ENOMEM)
        return api_error_memory(error);
    if (root == NULL)
        return api_error_set(error, 400, "bad_json", NULL, "The body is not JSON: %s.", why.text);
    int rc = file_move_read(root, from, to, replace, error);
    json_decref(root);
    return rc;
}

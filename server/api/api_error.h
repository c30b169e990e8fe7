/* An error as the HTTP API answers it: {"error":{"code":"slug","message":"one plain sentence",
 * "field":"/limits/wall_ms"}}. The struct has a fixed size: nothing to free, nothing that can fail
 * while failing. */
#pragma once

#include <stddef.h>

struct json_t;

#define API_ERROR_CODE_MAX 48
#define API_ERROR_MESSAGE_MAX 400
#define API_ERROR_FIELD_MAX 256
#define API_ERROR_QUOTA_MAX 32

struct api_error {
    int status;                          /* HTTP status; 0 = no error */
    char code[API_ERROR_CODE_MAX];       /* slug for programs */
    char message[API_ERROR_MESSAGE_MAX]; /* one plain sentence for people, UTF-8 */
    char field[API_ERROR_FIELD_MAX];     /* JSON pointer into the request; "" = none or the whole */
    char quota[API_ERROR_QUOTA_MAX];     /* which one is used up; "" = none */
    unsigned retry_after_s;              /* of a 429 or 503; 0 = a second */
};

/* Fills *e (which may be NULL). `field` may be NULL. Texts that do not fit are cut at a character
 * boundary; bytes that are not UTF-8 become '?'. Returns -1, so that `return api_error_set(…)`
 * reads well. */
int api_error_set(struct api_error *e, int status, const char *code, const char *field,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Adds which quota it is and when to try again. Returns -1. */
int api_error_quota(struct api_error *e, const char *quota, unsigned retry_after_s);

/* As api_error_set(500, "internal"): a failure of ours, "Out of memory." */
int api_error_memory(struct api_error *e);

/* The JSON body, NUL-terminated, in memory that the caller frees; *len (may be NULL) is its length.
 * NULL when memory is short. */
char *api_error_encode(const struct api_error *e, size_t *len);

/* Reads an error body that a server sent (the parsed answer, `status` from HTTP). -1 when it has no
 * error object; *e is then filled with a sentence that names the status, so *e is always usable. */
int api_error_decode(const struct json_t *body, int status, struct api_error *e);

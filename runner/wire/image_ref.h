/* How policies and requests name images: "NAME", or "NAME@sha256:HEX" for that one and no other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "wire.h"

#define IMAGE_REF_LIST_MAX 256u /* entries of a policy */

struct image_ref {
    char name[WIRE_NAME_MAX];
    bool pinned;
    uint8_t sha256[32]; /* zeros when it is not pinned */
};

/* ERR_INVALID says what is wrong with it. "host" cannot be pinned: what that
 * is says whoever starts the runner. */
int image_ref_parse(const char *text, struct image_ref *out, struct err *err);
/* 64 hex digits, lower case, and nothing else. */
bool image_ref_hex(const char *text, uint8_t sha256[32]);
void image_ref_to_hex(const uint8_t sha256[32], char out[65]);

/* Does one of the entries name this image? */
bool image_ref_allows(const struct image_ref *list, size_t count, const char *name,
                      const uint8_t sha256[32]);

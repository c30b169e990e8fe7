/* May this image be used, and which one is it? */
#pragma once

#include <stdint.h>

#include "api_error.h"
#include "link.h"

/* `digest` is "sha256:HEX", what the caller says it must be, or NULL. Fills in the digest of the
 * image that is there under this name (zeros for "host" of native jails, which has none). Else
 * *error: 400 unknown_image, 403 policy_image, 409 image_digest. In the state directory
 * (state_enter()). */
int image_check(const struct link_policy *policy, const char *name, const char *digest,
                uint8_t sha256[32], struct api_error *error);

struct json_out;
/* The member "image_digest", when it has one. */
void image_check_write(struct json_out *j, const uint8_t sha256[32]);

/* The allow-list of a policy's text, which the runner has checked. */
int image_check_policy(struct link_policy *policy, struct err *err);

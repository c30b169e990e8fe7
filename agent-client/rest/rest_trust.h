/* HTTPS: whose word on the server's identity counts, and what is said when it cannot be verified.
 * Verification cannot be switched off. */
#pragma once

#include <curl/curl.h>

#include "err.h"
#include "target.h"

void rest_trust_set_up(CURL *easy, const struct target *target);
/* Is this verdict about trust or TLS? Then *err gets the sentence (-1); else 0. `why` is curl's
 * own.
 */
int rest_trust_failed(CURL *easy, CURLcode rc, const struct target *target, const char *why,
                      struct err *err);

/* Words of the registry protocol: references to images, and what a registry says when it wants to
 * know who asks. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define IMAGE_REGISTRY_URL_MAX 2048

/* "HOST[:PORT]/PATH[:TAG][@sha256:HEX]" */
struct image_registry_ref {
    char host[256]; /* with its port */
    char path[256];
    char tag[129]; /* "latest" when neither tag nor digest is given, "" when only a digest is */
    char hex[65];  /* "" = any */
    bool loopback; /* this machine's: plain HTTP is as good there */
};

/* ERR_INVALID says what is wrong. No registry is guessed: the host must be named. */
int image_registry_parse(const char *text, struct image_registry_ref *out, struct err *err);

/* "Bearer realm=…,service=…,scope=…": who gives a token. */
struct image_registry_challenge {
    bool basic; /* user and password are asked for instead */
    char realm[1024], service[256], scope[512];
};

/* The value of a WWW-Authenticate header. False when it is none that is understood. */
bool image_registry_challenge(const char *text, struct image_registry_challenge *out);

/* May this be asked for a token, or be gone to? HTTPS, or HTTP to this machine when `loopback`. */
bool image_registry_url_ok(const char *url, bool loopback);

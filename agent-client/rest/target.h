/* Which server, and as whom: PINFOLD_URL, PINFOLD_TOKEN and, for HTTPS, PINFOLD_CA. The token comes
 * from the environment only, never from an argument that other users could see in a process list.
 */
#pragma once

#include <stdbool.h>

#include "err.h"

#define TARGET_DEFAULT_URL "http://127.0.0.1:7070"
#define TARGET_URL_MAX 1024
#define TARGET_TOKEN_MAX 512
#define TARGET_CA_MAX 4096

struct target {
    char url[TARGET_URL_MAX];     /* no slash at its end; no user or password in it */
    char token[TARGET_TOKEN_MAX]; /* "" = none given */
    char ca[TARGET_CA_MAX];       /* file of the authority that counts; "" = the machine's */
    bool loopback;                /* the host is this machine: no proxy in between */
};

/* Checks and takes over both texts; `url` NULL or "" = TARGET_DEFAULT_URL, `token` NULL = none.
 * Messages never contain the token. */
int target_init(struct target *t, const char *url, const char *token, struct err *err);
/* target_init() with the environment's values, and PINFOLD_CA. */
int target_from_env(struct target *t, struct err *err);
/* Wipes the token. */
void target_done(struct target *t);

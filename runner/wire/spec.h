/* The spec: argv, environment and cwd of one execution as one block of bytes. The server encodes
 * it, the runner passes it on unread, and the process that will exec decodes it inside the jail, as
 * the jail's user. Layout: struct spec_head, then NUL-terminated strings: cwd, argv[argc],
 * env[envc]. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define SPEC_MAGIC 0x31534650u /* "PFS1" */
#define SPEC_ARGS_MAX 8192u    /* argv and env entries each */

struct spec_head {
    uint32_t magic;
    uint32_t argc;
    uint32_t envc;
    uint32_t reserved;
};

/* Appends the encoded block to `out`. argv and env need no terminating NULL. */
int spec_encode(const char *cwd, const char *const *argv, size_t argc, const char *const *env,
                size_t envc, struct buf *out, struct err *err);

struct spec {
    const char *cwd;
    size_t argc, envc;
    char *argv[SPEC_ARGS_MAX + 4]; /* NULL-terminated; room for "bash", "-c" in front */
    char *env[SPEC_ARGS_MAX + 1];
};

/* Decodes without allocating: strings point into `data` (size bytes, which must stay).
 * ERR_PROTOCOL when the block is not exactly well-formed. Pure; async-signal-safe. */
int spec_decode(char *data, size_t size, struct spec *out, struct err *err);

/* Turns argv = {script} into {shell, "-c", script}. */
void spec_shell(struct spec *s, char *shell);

/* The value of NAME in s->env, or NULL. */
const char *spec_getenv(const struct spec *s, const char *name);

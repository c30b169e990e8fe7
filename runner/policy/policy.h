/* Policy files: what a jail may do, as JSON that an administrator owns.
 *
 * {
 *   "name": "default",                    equal to the file name without ".json"
 *   "about": "one sentence",
 *   "limits": {                           every limit of limit.h
 *     "wall_ms": {"default": 30000, "ceiling": 300000, "why": "…"}, …
 *   },
 *   "writable": {                         /workspace always is
 *     "home": {"allow": true, "why": "…"}, "tmp": …, "var_tmp": …, "shm": …
 *   },
 *   "network": {"mode": "none", "why": "…"},
 *   "syscalls": {"set": "default" | "strict", "why": "…"},
 *   "end_on": {"causes": ["output"], "why": "…"},
 *   "steps": {"max": 64, "why": "…"},
 *   "backends": {"allow": ["native", "docker"], "why": "…"},
 *   "images": {"allow": ["host", "python", "node@sha256:HEX"], "why": "…"}
 * }
 * Every key but "backends" and "images" is required, unknown and duplicate keys are errors, every
 * "why" is non-empty. The file and its directory must be owned by root (or the reader's own user)
 * and not writable by others.
 *
 * "backends" (backend.h) are what a jail may be made of; the first is what a request gets that
 * names none. Without the key it is the native one alone. "images" are what may be used
 * (image_ref.h); without the key it is every image. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "image_ref.h"
#include "limit.h"
#include "wire.h"

enum policy_syscalls {
    POLICY_SYSCALLS_DEFAULT = 0, /* what toolchains and runtimes need */
    POLICY_SYSCALLS_STRICT = 1,  /* no ptrace, no sockets but AF_UNIX, … : see jail/seccomp.h */
};

struct policy {
    char name[WIRE_NAME_MAX];
    uint8_t sha256[32];
    struct limits ceiling;
    struct limits preset;
    uint32_t writable; /* mask of enum wire_writable */
    uint32_t network;
    uint32_t end_on;
    uint32_t max_steps;
    uint32_t backends;    /* mask of BACKEND_BIT() */
    enum backend backend; /* of those, the default */
    enum policy_syscalls syscalls;
    bool any_image;           /* else only these: */
    struct image_ref *images; /* owned */
    size_t image_count;
    char *text; /* the file's bytes, owned */
    size_t text_size;
};

/* Parses one file's bytes. `name` is the expected name. On success the caller owns *out
 * (policy_done()). ERR_INVALID names the JSON pointer that is wrong. Never reads files. */
int policy_parse(const char *name, const char *text, size_t size, struct policy *out,
                 struct err *err);
void policy_done(struct policy *p);

struct policy_set {
    struct policy *items; /* sorted by name */
    size_t count;
};

#define POLICY_SET_MAX 64

/* For the start of a runner: when the JSON library has no memory, the program ends with a
 * sentence. The library itself would go on with less than was in the file, or read on behind it. */
void policy_load_guard(void);
/* Reads every *.json of `dir` (checks owner and mode of directory and files). Needs "default" to be
 * there. One bad file fails the whole set, naming the file: an administrator's typo must not lead
 * to a wider policy. */
int policy_set_load(const char *dir, struct policy_set *out, struct err *err);
void policy_set_done(struct policy_set *set);
/* May it be used? `sha256` is the digest of what is there under this name, zeros: it has none.
 * ERR_INVALID with code EPERM names policy and image. */
int policy_check_image(const struct policy *p, const char *name, const uint8_t sha256[32],
                       struct err *err);
/* -> borrowed, or NULL. */
const struct policy *policy_find(const struct policy_set *set, const char *name);

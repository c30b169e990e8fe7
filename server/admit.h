/* What a request may have: its wishes against a policy. Pure. */
#pragma once

#include <stdint.h>

#include "api_error.h"
#include "limits_json.h"
#include "request.h"
#include "wire.h"

struct admit {
    struct limits_effective run;
    struct limits open;             /* of the jail: what the widest of run and steps has */
    struct limits_effective *steps; /* one per step; owned */
    uint32_t end_on;
};

/* Bytes of output that all steps of a run together may keep, of this many streams each. */
#define ADMIT_OUTPUT_MAX ((uint64_t)512 * 1024 * 1024)
#define ADMIT_STREAMS 2u
/* How much these steps may keep. */
uint64_t admit_output(const struct limits_effective *steps, size_t count);

/* 0: the caller owns out->steps (free()). -1: *error is filled (400, 403, 422), *out untouched. */
int admit_check(const struct run_request *req, const struct wire_policy *policy, struct admit *out,
                struct api_error *error);

/* The parts of it, for sandboxes and what runs in them. */
/* Wishes against the policy: what is in force. */
int admit_limits(const struct request_limits *wish, const struct wire_policy *policy,
                 struct limits_effective *out, struct api_error *error);
int admit_network(enum request_network wish, struct api_error *error);
/* BACKEND_NONE: the policy's default. */
int admit_backend(enum backend wish, const struct wire_policy *policy, enum backend *out,
                  struct api_error *error);
/* Wishes of a step (or of an execution) within what the whole has. `prefix` is the JSON pointer of
 * what has the limits ("/steps/1", ""). */
int admit_step_limits(const struct request_limits *wish, const char *prefix,
                      const struct wire_policy *policy, const struct limits_effective *whole,
                      struct limits_effective *out, struct api_error *error);
/* Of the jail of a sandbox whose executions are not known yet: what belongs to the whole, and for
 * everything else the policy's ceiling. */
void admit_jail_limits(const struct limits *whole, const struct wire_policy *policy,
                       struct limits *out);

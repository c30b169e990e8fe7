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

/* 0: the caller owns out->steps (free()). -1: *error is filled (400, 403), *out untouched. */
int admit_check(const struct run_request *req, const struct wire_policy *policy, struct admit *out,
                struct api_error *error);

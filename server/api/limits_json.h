/* Effective limits as JSON: {"wall_ms": {"value": 30000, "from": "default"}, …}. */
#pragma once

#include <stdint.h>

#include "err.h"
#include "limit.h"

struct json_t;

/* Where a limit in force came from. */
enum limits_from {
    LIMITS_FROM_DEFAULT, /* nobody asked: the policy's default */
    LIMITS_FROM_POLICY,  /* the policy decided it (a ceiling below what would have been) */
    LIMITS_FROM_REQUEST, /* the caller asked for it */
    LIMITS_FROM_BUDGET,  /* less is left of the budget of the token */
    /* The policy's default, which the runner cannot keep: "default" with "enforced": false. */
    LIMITS_FROM_UNENFORCED,
    LIMITS_FROM_COUNT
};

struct limits_effective {
    struct limits values;
    uint8_t from[LIMIT_COUNT]; /* enum limits_from */
};

/* "default", "policy", "request"; NULL when out of range. */
const char *limits_from_name(unsigned from);

/* A new reference, or NULL when memory is short. */
struct json_t *limits_json_encode(const struct limits_effective *e);
/* Only the limits that differ from `base` (of a step that narrowed some); NULL when memory is
 * short; an empty object when none differs. */
struct json_t *limits_json_encode_changed(const struct limits_effective *e,
                                          const struct limits_effective *base);

/* Reads such an object. Names that are not known are skipped (a newer server), missing ones leave
 * 0. */
int limits_json_decode(const struct json_t *object, struct limits_effective *out, struct err *err);

/* Members that the receipts of runs and of executions have in common; keys in their order. */
#pragma once

#include <stdint.h>

#include "answer.h"
#include "capture.h"
#include "end_json.h"
#include "json_out.h"
#include "limit.h"
#include "wire.h"

/* A number as JSON readers can hold it. */
void receipt_parts_u64(struct json_out *j, const char *key, uint64_t value);
/* "limits" */
void receipt_parts_limits(struct json_out *j, const struct limits *limits);
/* "end" */
void receipt_parts_end(struct json_out *j, const struct step_end *end);
/* "usage" */
void receipt_parts_usage(struct json_out *j, const struct wire_usage *u);
/* {bytes, omitted, sha256}: the digest, which `hash` gets too, is of what the answer shows. */
void receipt_parts_output(struct json_out *j, const char *key, const struct capture *c,
                          uint8_t hash[32]);

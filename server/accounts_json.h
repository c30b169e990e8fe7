/* Users and tokens as JSON documents. Never a token's text, never its hash. */
#pragma once

#include "accounts.h"
#include "json_out.h"

void accounts_json_user(struct json_out *j, const char *key, const struct accounts_user *u);
/* The token as it is at this time. */
void accounts_json_token(struct json_out *j, const char *key, const struct accounts_token *t,
                         uint64_t now_ms);
/* Its members alone, for an object that has more. */
void accounts_json_token_members(struct json_out *j, const struct accounts_token *t,
                                 uint64_t now_ms);
/* "active", "revoked", "expired", "disabled". */
const char *accounts_json_state(const struct accounts_token *t, uint64_t now_ms);
/* "scopes": ["run", …] */
void accounts_json_scopes(struct json_out *j, unsigned scopes);

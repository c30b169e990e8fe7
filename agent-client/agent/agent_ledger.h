/* What asking models has cost: an append-only journal, one JSON object a line, each with the hash
 * of the one before it, and what tokens cost.
 *
 * Money is in millionths of a dollar, in integers, rounded up per request. A model whose price is
 * not known has no cost, which is not the same as none. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "model.h"

#define AGENT_LEDGER_HASH 65 /* hexadecimal with its NUL */
#define AGENT_LEDGER_LINE_MAX ((size_t)64 * 1024)

/* Prices: {"version": "2026-11", "models": {"name" or "prefix*": {"input": N, "cache_read": N,
 * "cache_write": N, "output": N}}}, in millionths of a dollar per million tokens. The longest
 * prefix counts. */
struct agent_prices {
    json_t *root;     /* NULL = none */
    char version[64]; /* "" = none */
};

int agent_prices_load(struct agent_prices *p, int dir, const char *file, struct err *err);
void agent_prices_done(struct agent_prices *p);
/* false: the price is not known. `local`: costs nothing. */
bool agent_prices_cost(const struct agent_prices *p, const char *model, bool local,
                       const struct model_usage *usage, uint64_t *micro_usd);

struct agent_ledger_entry {
    uint64_t when_ms, duration_ms;
    const char *session, *parent; /* of a nested run; NULL = none */
    const char *task, *workspace, *provider, *host, *model, *prices;
    const char *rules;   /* digest of the permissions that held */
    const char *outcome; /* "ok" or the failure */
    struct model_usage usage;
    bool priced;
    uint64_t micro_usd;
};

/* Appends one line to dir/file, under a lock, fsynced. The file is made with mode 0600. */
int agent_ledger_add(int dir, const char *file, const struct agent_ledger_entry *entry,
                     struct err *err);
/* Calls `each` for every line, oldest first, until it returns false; checks the chain on the way.
 * -1: ERR_PROTOCOL names the first line that does not fit, *err; or the file cannot be read (a
 * missing one has no lines). */
int agent_ledger_read(int dir, const char *file, bool (*each)(void *arg, const json_t *line),
                      void *arg, struct err *err);

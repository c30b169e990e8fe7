#include "server.h"

#include <errno.h>
#include <inttypes.h>

void server_no_store(struct server *s, const struct err *err, struct api_error *error) {
    const char *why = store_sick(s->store);
    if (store_full(s->store) || (err != NULL && err->code == ENOSPC))
        api_error_set(error, 507, "no_space", NULL,
                      "The disk of the state directory is full: no new work is taken until there "
                      "is space again.");
    else
        api_error_set(error, 503, "store", NULL, "The database cannot be written: %s",
                      err != NULL   ? err->text
                      : why != NULL ? why
                                    : "the reason is not known");
}

int server_check_memory(const struct server *s, uint64_t mem_bytes, struct api_error *error) {
    if (!hostmem_never(&s->mem, mem_bytes))
        return 0;
    return api_error_set(error, 422, "limit_unavailable", "/limits/mem_bytes",
                         "mem_bytes is %" PRIu64 ", and this host has %" PRIu64
                         " bytes for all jails together, of which limits may add up to %u %%.",
                         mem_bytes, s->mem.budget, s->mem.overcommit);
}

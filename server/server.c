#include "server.h"

#include <errno.h>

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

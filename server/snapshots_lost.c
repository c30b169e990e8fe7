#include "snapshots_lost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox.h"

struct snapshots_lost_row {
    char owner[SANDBOX_OWNER_SIZE];
    char ref[SANDBOX_ID_SIZE + sizeof("@4294967295")];
};

void snapshots_lost_done(struct snapshots_lost *l) {
    free(l->rows);
    l->rows = NULL;
}

void snapshots_lost_add(struct snapshots_lost *l, const char *owner, const char *ref) {
    if (l->rows == NULL)
        l->rows = calloc(SNAPSHOTS_LOST_MAX, sizeof(*l->rows));
    if (l->rows == NULL)
        return;
    struct snapshots_lost_row *row = &l->rows[l->next++ % SNAPSHOTS_LOST_MAX];
    snprintf(row->owner, sizeof(row->owner), "%s", owner);
    snprintf(row->ref, sizeof(row->ref), "%s", ref);
}

bool snapshots_lost_has(const struct snapshots_lost *l, const char *owner, const char *ref) {
    if (ref[0] == '\0')
        return false;
    for (size_t i = 0; l->rows != NULL && i < SNAPSHOTS_LOST_MAX; i++)
        if (strcmp(l->rows[i].ref, ref) == 0 && strcmp(l->rows[i].owner, owner) == 0)
            return true;
    return false;
}

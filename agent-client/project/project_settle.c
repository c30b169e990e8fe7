/* After changes have come back: does the sandbox have what is here? */
#include <string.h>

#include "project.h"

/* What was brought here. */
struct project_settle {
    const struct undo_change *changes;
    size_t count;
};

/* Is `e` (NULL: nothing) what was brought here under this path? *from is where the search begins:
 * both are in about the same order. */
static bool project_settle_is(const struct project_settle *made, const struct ws_entry *e,
                              const char *path, size_t *from) {
    for (size_t tried = 0, i = *from; tried < made->count; tried++, i++) {
        i = i < made->count ? i : 0;
        const struct undo_state *s = &made->changes[i].after;
        if (strcmp(made->changes[i].path, path) != 0)
            continue;
        *from = i + 1;
        if (e == NULL || s->type == UNDO_ABSENT)
            return e == NULL && s->type == UNDO_ABSENT;
        if (e->type == WS_LINK)
            return s->type == UNDO_LINK && strcmp(e->target, s->target) == 0;
        return s->type == (e->type == WS_FILE ? UNDO_FILE : UNDO_DIR) && s->mode == e->mode &&
               (e->type != WS_FILE || memcmp(s->sha256, e->sha256, sizeof(e->sha256)) == 0);
    }
    return false;
}

static bool project_settle_unchanged(const struct ws_entry *a, const struct ws_entry *b) {
    return a->type == b->type && a->mode == b->mode && a->withheld == b->withheld &&
           (a->type != WS_FILE || memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0) &&
           (a->type != WS_LINK || strcmp(a->target, b->target) == 0);
}

/* Whatever differs here from what was sent came from the sandbox. Somebody may have written here
 * while the command ran: that the sandbox has not seen. */
static bool project_settle_same(const struct project_settle *made, const struct ws_tree *sent,
                                const struct ws_tree *now) {
    size_t from = 0;
    for (size_t i = 0, k = 0;;) {
        const struct ws_entry *a = i < sent->count ? &sent->entries[i] : NULL;
        const struct ws_entry *b = k < now->count ? &now->entries[k] : NULL;
        if (a == NULL && b == NULL)
            return true;
        int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a->path, b->path);
        i += order <= 0;
        k += order >= 0;
        if (order == 0 && project_settle_unchanged(a, b))
            continue;
        if (!project_settle_is(made, order >= 0 ? b : NULL, order <= 0 ? a->path : b->path, &from))
            return false;
    }
}

int project_settle(struct project *p, const struct project_report *report,
                   const struct undo_change *changes, size_t count, struct err *err) {
    const struct project_settle made = {.changes = changes, .count = count};
    if (report->denied > 0 || report->conflicts > 0) {
        p->synced = false;
        p->refused = true;
        return project_save(p, err);
    }
    if (report->id[0] == '\0')
        return 0;
    struct ws_tree sent = p->tree;
    memset(&p->tree, 0, sizeof(p->tree));
    int rc = project_look(p, err);
    if (rc == 0)
        p->synced = p->synced && project_settle_same(&made, &sent, &p->tree);
    ws_tree_done(&sent);
    if (rc == 0 && p->synced) {
        rc = ws_cache_save(p->state, PROJECT_SENT_CACHE, &p->tree, p->rules.digest, err);
        ws_tree_digest(&p->tree, p->sent);
    }
    return rc < 0 ? -1 : project_save(p, err);
}

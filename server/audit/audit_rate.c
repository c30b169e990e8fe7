#include "audit_rate.h"

#include <string.h>

#include "str.h"

static bool audit_rate_over(const struct audit_rate_entry *e, uint64_t now_ms) {
    return now_ms >= e->from_ms + AUDIT_RATE_WINDOW_MS || now_ms < e->from_ms;
}

static bool audit_rate_is(const struct audit_rate_entry *e, const char *what, const char *user) {
    return strcmp(e->what, what) == 0 && strcmp(e->user, user) == 0;
}

/* One whose window is over and that owes no sum may be taken for another. */
static struct audit_rate_entry *audit_rate_find(struct audit_rate *r, const char *what,
                                                const char *user, uint64_t now_ms) {
    struct audit_rate_entry *unused = NULL;
    for (size_t i = 0; i < AUDIT_RATE_ENTRIES; i++) {
        struct audit_rate_entry *e = &r->entries[i];
        if (e->what[0] != '\0' && audit_rate_is(e, what, user))
            return e;
        if (unused == NULL &&
            (e->what[0] == '\0' || (e->left_out == 0 && audit_rate_over(e, now_ms))))
            unused = e;
    }
    struct audit_rate_entry *e = unused != NULL ? unused : &r->others;
    if (unused == NULL && e->what[0] != '\0')
        return e;
    memset(e, 0, sizeof(*e));
    e->from_ms = now_ms;
    if (unused == NULL) {
        str_copy(e->what, sizeof(e->what), "others");
    } else if (!str_copy(e->what, sizeof(e->what), what) ||
               !str_copy(e->user, sizeof(e->user), user)) {
        e->what[0] = '\0';
        return NULL;
    }
    return e;
}

bool audit_rate_pass(struct audit_rate *r, const char *what, const char *user, uint64_t most,
                     uint64_t now_ms) {
    struct audit_rate_entry *e = audit_rate_find(r, what, user, now_ms);
    if (e == NULL)
        return true; /* names are shorter than this: it cannot be */
    if (audit_rate_over(e, now_ms) && e->left_out == 0) {
        e->from_ms = now_ms;
        e->passed = 0;
    }
    if (e->passed < most) {
        e->passed++;
        return true;
    }
    e->left_out++;
    return false;
}

bool audit_rate_sum(struct audit_rate *r, uint64_t now_ms, bool all,
                    void (*fn)(void *arg, const struct audit_rate_entry *e), void *arg) {
    bool more = false;
    for (size_t i = 0; i <= AUDIT_RATE_ENTRIES; i++) {
        struct audit_rate_entry *e = i < AUDIT_RATE_ENTRIES ? &r->entries[i] : &r->others;
        if (e->what[0] == '\0' || e->left_out == 0)
            continue;
        if (!all && !audit_rate_over(e, now_ms)) {
            more = true;
            continue;
        }
        struct audit_rate_entry sum = *e;
        memset(e, 0, sizeof(*e));
        fn(arg, &sum);
    }
    return more;
}

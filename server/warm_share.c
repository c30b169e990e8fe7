#include "warm_share.h"

#include <string.h>

#include "str.h"

#define WARM_SHARE_ONE 256u      /* so that halves are not lost at once */
#define WARM_SHARE_SLACK 4u      /* a quarter more than an equal part is still one */
#define WARM_SHARE_MOST 1000000u /* counted of one user: far from the end of the type */

static void warm_share_halve(struct warm_share *w, uint64_t now_ns) {
    uint64_t times = (now_ns - w->halved_ns) / WARM_SHARE_HALF_NS;
    if (times == 0)
        return;
    w->halved_ns += times * WARM_SHARE_HALF_NS;
    for (size_t i = w->count; i-- > 0;) {
        struct warm_share_user *u = &w->users[i];
        u->had = times < 32 ? u->had >> times : 0;
        if (now_ns - u->last_ns > WARM_SHARE_STAY_NS)
            *u = w->users[--w->count];
    }
}

/* A new one takes the place of the one that had least when there is none. */
static struct warm_share_user *warm_share_find(struct warm_share *w, uint32_t who) {
    struct warm_share_user *least = &w->users[0];
    for (size_t i = 0; i < w->count; i++) {
        if (w->users[i].who == who)
            return &w->users[i];
        if (w->users[i].had < least->had)
            least = &w->users[i];
    }
    struct warm_share_user *u = w->count < WARM_SHARE_USERS ? &w->users[w->count++] : least;
    *u = (struct warm_share_user){.who = who};
    return u;
}

bool warm_share_start(struct warm_share *w, const char *user, uint64_t now_ns) {
    uint64_t all = 0;
    warm_share_halve(w, now_ns);
    struct warm_share_user *u = warm_share_find(w, str_hash(user, strlen(user)));
    u->last_ns = now_ns;
    if (u->had < WARM_SHARE_MOST * WARM_SHARE_ONE)
        u->had += WARM_SHARE_ONE;
    for (size_t i = 0; i < w->count; i++)
        all += w->users[i].had;
    uint64_t part = all / w->count;
    return w->count > 1 && u->had > WARM_SHARE_FEW * WARM_SHARE_ONE &&
           u->had > part + part / WARM_SHARE_SLACK;
}

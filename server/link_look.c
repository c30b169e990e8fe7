#include <string.h>

#include "clock.h"
#include "link_internal.h"
#include "link_send.h"
#include "str.h"

void link_look(struct link *l, uint32_t what) {
    struct wire_look packet;
    struct err err;
    if (l->state != LINK_READY)
        return;
    if (l->look.what != 0) {
        l->look.again |= what & ~l->look.what;
        return;
    }
    memset(&packet, 0, sizeof(packet));
    wire_head_init(&packet.head, WIRE_LOOK, sizeof(packet), 0, 0);
    packet.what = what;
    struct link_send_item item = {.parts = {{.iov_base = &packet, .iov_len = sizeof(packet)}},
                                  .part_count = 1};
    err_clear(&err);
    if (link_send(l, &item, &err) < 0)
        return; /* memory is short: there is nothing to be seen */
    if (what & WIRE_LOOK_JAILS)
        l->look.began++;
    if (what & WIRE_LOOK_KINDS)
        l->look.next.count = 0;
    l->look.what = what;
}

void link_look_reset(struct link *l) {
    l->look.what = l->look.again = 0;
    l->look.kinds.count = 0;
}

void link_look_kind(struct link *l, const struct wire_kind *kind) {
    struct link_kinds *k = &l->look.next;
    if (k->count == LINK_KINDS_MAX)
        return;
    struct link_kind *to = &k->items[k->count++];
    str_copy(to->policy, sizeof(to->policy), kind->policy);
    str_copy(to->image, sizeof(to->image), kind->image);
    to->warm = kind->warm;
}

/* An execution that has ended since is missing in the sum: what is there is of the others. */
void link_look_seen(struct link_jail *j, const struct wire_seen *seen) {
    struct link_sight *sight = &j->sight;
    uint64_t now = clock_mono_ns();
    uint64_t used = seen->cpu_ns >= sight->cpu_ns ? seen->cpu_ns - sight->cpu_ns : seen->cpu_ns;
    uint64_t passed = now - sight->at_ns;
    uint64_t milli = sight->at_ns > 0 && passed > 0 ? used / (passed / 1000 + 1) : UINT32_MAX;
    *sight = (struct link_sight){.cpu_ns = seen->cpu_ns,
                                 .mem_bytes = seen->mem_bytes,
                                 .at_ns = now,
                                 .running = seen->running,
                                 .cpus_milli = (uint32_t)(milli < UINT32_MAX ? milli : UINT32_MAX)};
    j->seen = j->link->look.began;
}

void link_look_done(struct link *l) {
    if (l->look.what & WIRE_LOOK_KINDS)
        l->look.kinds = l->look.next;
    if (l->look.what & WIRE_LOOK_JAILS)
        l->look.ended = l->look.began;
    uint32_t again = l->look.again;
    l->look.what = l->look.again = 0;
    if (again != 0)
        link_look(l, again);
    if (l->watch->looked != NULL)
        l->watch->looked(l->watch->arg, l);
}

bool link_seen(const struct link_jail *j, struct link_sight *out) {
    if (j == NULL || j->seen == 0 || j->seen < j->link->look.ended)
        return false;
    *out = j->sight;
    return true;
}

bool link_sighted(const struct link_jail *j, struct link_sight *out) {
    if (j == NULL || j->sight.at_ns == 0)
        return false;
    *out = j->sight;
    return true;
}

#include "wire.h"

#include <stdbool.h>
#include <string.h>

#include "spec.h"
#include "str.h"

/* The layout has no holes, so nothing of the sender's memory leaks through one, and both ends
 * compute the same sizes. */
_Static_assert(sizeof(struct wire_head) == 24, "wire_head");
_Static_assert(sizeof(struct wire_open) == 24 + 128 + 88 + 16 + 128 + 32, "wire_open");
_Static_assert(sizeof(struct wire_exec) == 24 + 16 + 88 + 16 + 8, "wire_exec");
_Static_assert(sizeof(struct wire_kill) == 24 + 8, "wire_kill");
_Static_assert(sizeof(struct wire_welcome) == 24 + 40 + 32, "wire_welcome");
_Static_assert(sizeof(struct wire_policy) == 24 + 64 + 32 + 176 + 32, "wire_policy");
_Static_assert(sizeof(struct wire_capability) == 24 + 8 + 32 + 128 + 384, "wire_capability");
_Static_assert(sizeof(struct wire_usage) == 72, "wire_usage");
_Static_assert(sizeof(struct wire_end) == 24 + 16 + 24 + 8 + 72 + 64 + 512, "wire_end");
_Static_assert(sizeof(struct wire_failed) == 24 + 8 + 64 + 512, "wire_failed");
_Static_assert(sizeof(struct wire_signal) == 24 + 8, "wire_signal");
_Static_assert(sizeof(struct wire_weigh) == 24 + 8, "wire_weigh");
_Static_assert(sizeof(struct wire_freeze) == 24 + 8, "wire_freeze");
_Static_assert(sizeof(struct wire_key) == 24 + 64, "wire_key");
_Static_assert(sizeof(struct wire_done) == 24 + 16 + 24 + 64 + 512, "wire_done");
_Static_assert(sizeof(struct wire_kept) == 24 + 16 + 64, "wire_kept");
_Static_assert(sizeof(struct wire_kept_exec) == 24 + 8, "wire_kept_exec");
_Static_assert(sizeof(struct wire_state) == 24 + 8 + 16 + 512, "wire_state");

/* What a packet's head may say beside its type and size. */
enum wire_about {
    WIRE_ABOUT_NONE, /* jail 0, exec 0 */
    WIRE_ABOUT_JAIL, /* a jail, exec 0 */
    WIRE_ABOUT_EXEC, /* a jail, any exec */
};

/* One row per packet that may come: everything else is refused. */
struct wire_rule {
    uint32_t type;
    const char *name;
    size_t size;     /* of the struct */
    size_t tail_max; /* bytes that may follow it */
    bool fds;        /* may carry descriptors */
    enum wire_about about;
    /* Checks the fields; `tail` bytes follow the struct. Returns the wrong field, NULL when right.
     */
    const char *(*fields)(const void *data, size_t tail, size_t nfds);
};

void wire_head_init(struct wire_head *h, enum wire_type type, size_t size, uint64_t jail,
                    uint32_t exec) {
    *h = (struct wire_head){
        .version = WIRE_VERSION,
        .type = type,
        .size = (uint32_t)size,
        .exec = exec,
        .jail = jail,
    };
}

size_t wire_fd_count(uint32_t mask) {
    return (size_t)__builtin_popcount(mask & WIRE_FD_ALL);
}

/* NUL-terminated within its array. */
static bool wire_text(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static bool wire_name(const char *text, size_t size) {
    return wire_text(text, size) && str_is_name(text);
}

static bool wire_in_table(const struct limits *l) {
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *row = limit_info((enum limit_id)i);
        if (l->v[i] < row->min || l->v[i] > row->max)
            return false;
    }
    return true;
}

static bool wire_zeros(const uint8_t *bytes, size_t size) {
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all |= bytes[i];
    return all == 0;
}

static const char *wire_fields_open(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_open *p = data;
    if (!wire_name(p->policy, sizeof(p->policy)))
        return "policy";
    if (!wire_name(p->image, sizeof(p->image)))
        return "image";
    if (!wire_in_table(&p->limits))
        return "limits";
    if (p->network != WIRE_NETWORK_NONE)
        return "network";
    if (p->flags & ~(uint32_t)WIRE_OPEN_FLAGS)
        return "flags";
    if (p->disk >= WIRE_DISK_COUNT)
        return "disk";
    if (p->flags & WIRE_OPEN_SANDBOX ? !wire_name(p->key, sizeof(p->key)) : p->key[0] != '\0')
        return "key";
    if (p->from[0] != '\0' && !wire_name(p->from, sizeof(p->from)))
        return "from";
    return p->reserved ? "reserved" : NULL;
}

/* A terminal takes the place of the three streams, and comes with its size. */
static const char *wire_fields_terminal(const struct wire_exec *p) {
    uint32_t streams = WIRE_FD_STDIN | WIRE_FD_STDOUT | WIRE_FD_STDERR |
                       (WIRE_FD_KEEP & ~(uint32_t)WIRE_FD_KEEP_INPUT);
    bool pty = p->flags & WIRE_EXEC_PTY;
    if (pty ? (p->fds & streams) != 0 : !(p->fds & WIRE_FD_STDOUT))
        return "fds";
    return pty == (p->rows > 0 && p->cols > 0) && pty == (p->rows > 0 || p->cols > 0) ? NULL
                                                                                      : "rows";
}

/* A collector reads no stdin, gets no files and has no stderr; a command collects nothing; a file
 * operation has a stream in and a stream out. */
static const char *wire_fields_kind(const struct wire_exec *p) {
    uint32_t not_files = WIRE_FD_STDERR | WIRE_FD_BUNDLE | WIRE_FD_KEEP;
    bool collect = p->kind == WIRE_EXEC_COLLECT;
    if (!collect && (p->collect_bytes || p->collect_files))
        return "collect";
    if (p->kind == WIRE_EXEC_COMMAND)
        return NULL;
    if (!collect && p->kind != WIRE_EXEC_FILES)
        return "kind";
    if (p->fds & (collect ? not_files | WIRE_FD_STDIN : not_files))
        return "fds";
    if (p->flags & (WIRE_EXEC_SHELL | WIRE_EXEC_PTY))
        return "flags";
    if (p->collect_bytes > WIRE_COLLECT_BYTES_MAX)
        return "collect_bytes";
    return p->collect_files > WIRE_COLLECT_FILES_MAX ? "collect_files" : NULL;
}

static const char *wire_fields_exec(const void *data, size_t tail, size_t nfds) {
    const struct wire_exec *p = data;
    if (p->fds & ~(uint32_t)WIRE_FD_ALL)
        return "fds";
    if (nfds != wire_fd_count(p->fds))
        return "number of descriptors";
    if (p->flags & ~(uint32_t)WIRE_EXEC_FLAGS)
        return "flags";
    if (p->end_on & ~(uint32_t)END_ON_ALL)
        return "end_on";
    if (!wire_in_table(&p->limits))
        return "limits";
    const char *terminal = wire_fields_terminal(p);
    if (terminal)
        return terminal;
    if (p->reserved)
        return "reserved";
    bool apart = p->fds & WIRE_FD_SPEC;
    if (p->spec_size <= sizeof(struct spec_head) || p->spec_size > WIRE_SPEC_MAX ||
        tail != (apart ? 0 : p->spec_size))
        return "spec_size";
    return wire_fields_kind(p);
}

static const char *wire_fields_kill(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_kill *p = data;
    if (p->cause != CAUSE_CANCELLED && p->cause != CAUSE_LOST_CLIENT && p->cause != CAUSE_OUTPUT &&
        p->cause != CAUSE_INTERRUPTED)
        return "cause";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_signal(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_signal *p = data;
    if (p->signal > 64)
        return "signal";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_freeze(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_freeze *p = data;
    if (p->frozen > 1)
        return "frozen";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_weigh(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_weigh *p = data;
    if (p->shares != WIRE_SHARES_LEFT &&
        (p->shares < WIRE_SHARES_MIN || p->shares > WIRE_SHARES_MAX))
        return "shares";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_key(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_key *p = data;
    return wire_name(p->key, sizeof(p->key)) ? NULL : "key";
}

static const char *wire_fields_welcome(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_welcome *p = data;
    if (p->slots < 1)
        return "slots";
    if (p->policies < 1 || p->policies > WIRE_POLICIES_MAX)
        return "policies";
    if (p->execs < 1)
        return "execs";
    if (backend_name(p->backend) == NULL)
        return "backend";
    if (p->backend == BACKEND_NATIVE && !wire_zeros(p->host_sha256, sizeof(p->host_sha256)))
        return "host_sha256";
    if (p->disk >= WIRE_DISK_COUNT)
        return "disk";
    if (p->reserved)
        return "reserved";
    return p->capabilities > WIRE_CAPABILITIES_MAX ? "capabilities" : NULL;
}

static const char *wire_fields_policy(const void *data, size_t tail, size_t nfds) {
    (void)nfds;
    const struct wire_policy *p = data;
    if (!wire_name(p->name, sizeof(p->name)))
        return "name";
    if (!wire_in_table(&p->ceiling))
        return "ceiling";
    if (limit_check(&p->preset, &p->ceiling, NULL) < 0)
        return "preset";
    if ((p->writable & ~(uint32_t)WIRE_WRITABLE_ALL) || !(p->writable & WIRE_WRITABLE_WORKSPACE))
        return "writable";
    if (p->network != WIRE_NETWORK_NONE)
        return "network";
    if (p->end_on & ~(uint32_t)END_ON_ALL)
        return "end_on";
    if (p->max_steps < 1)
        return "max_steps";
    if (p->text_size != tail)
        return "text_size";
    if (p->backends & ~BACKEND_BITS_ALL)
        return "backends";
    if (p->unenforced >> LIMIT_COUNT != 0)
        return "unenforced";
    if (backend_name(p->backend) == NULL || !(p->backends & BACKEND_BIT(p->backend)))
        return "backend";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_capability(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_capability *p = data;
    if (p->status < WIRE_CAP_ENFORCED || p->status > WIRE_CAP_GIVEN_UP)
        return "status";
    if (p->required > 1)
        return "required";
    if (!wire_name(p->name, sizeof(p->name)))
        return "name";
    if (!wire_text(p->how, sizeof(p->how)))
        return "how";
    if (!wire_text(p->proof, sizeof(p->proof)))
        return "proof";
    return wire_text(p->remedy, sizeof(p->remedy)) ? NULL : "remedy";
}

static const char *wire_fields_end(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_end *p = data;
    if (p->cause <= CAUSE_NONE || p->cause >= CAUSE_COUNT)
        return "cause";
    if (p->exit_code < -1 || p->exit_code > 255 || (p->cause == CAUSE_EXIT && p->exit_code < 0))
        return "exit_code";
    if (p->signal < 0 || p->signal > 64 || (p->cause == CAUSE_EXIT && p->signal) ||
        (p->cause == CAUSE_SIGNAL && !p->signal))
        return "signal";
    if (p->code < 0 || p->code > WIRE_ERRNO_MAX)
        return "code";
    if (p->cause != CAUSE_SYSCALL && (p->syscall_nr || p->syscall_arch))
        return "syscall";
    if (!wire_text(p->stage, sizeof(p->stage)))
        return "stage";
    return wire_text(p->path, sizeof(p->path)) ? NULL : "path";
}

static const char *wire_fields_failed(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_failed *p = data;
    if (p->code < 0 || p->code > WIRE_ERRNO_MAX)
        return "code";
    if (p->reserved)
        return "reserved";
    if (!wire_text(p->stage, sizeof(p->stage)))
        return "stage";
    return wire_text(p->text, sizeof(p->text)) ? NULL : "text";
}

static const char *wire_fields_state(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_state *p = data;
    return wire_text(p->health, sizeof(p->health)) ? NULL : "health";
}

static const char *wire_fields_started(const void *data, size_t tail, size_t nfds) {
    (void)data;
    (void)tail;
    return nfds == 1 ? NULL : "number of descriptors";
}

static const char *wire_fields_done(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_done *p = data;
    bool keyed = p->what == WIRE_SNAPSHOT || p->what == WIRE_RESTORE || p->what == WIRE_ADOPT;
    if (!keyed && p->what != WIRE_FREEZE)
        return "what";
    if (p->code < 0 || p->code > WIRE_ERRNO_MAX)
        return "code";
    if (p->frozen > 1)
        return "frozen";
    if (keyed ? !wire_name(p->key, sizeof(p->key)) : p->key[0] != '\0')
        return "key";
    return wire_text(p->text, sizeof(p->text)) ? NULL : "text";
}

static const char *wire_fields_kept(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_kept *p = data;
    return wire_name(p->key, sizeof(p->key)) ? NULL : "key";
}

static const char *wire_fields_kept_exec(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    const struct wire_kept_exec *p = data;
    if (p->fds & ~(uint32_t)WIRE_FD_KEEP)
        return "fds";
    if (nfds != wire_fd_count(p->fds))
        return "number of descriptors";
    return p->flags & ~(uint32_t)WIRE_EXEC_PTY ? "flags" : NULL;
}

static const char *wire_fields_look(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_look *p = data;
    if (p->what == 0 || p->what > WIRE_LOOKS)
        return "what";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_warm_kind(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    const struct wire_kind *p = data;
    if (!wire_name(p->policy, sizeof(p->policy)))
        return "policy";
    if (!wire_name(p->image, sizeof(p->image)))
        return "image";
    return p->reserved ? "reserved" : NULL;
}

static const char *wire_fields_seen(const void *data, size_t tail, size_t nfds) {
    (void)tail;
    (void)nfds;
    return ((const struct wire_seen *)data)->reserved ? "reserved" : NULL;
}

/* What a server may send. */
static const struct wire_rule wire_requests[] = {
    {WIRE_HELLO, "HELLO", sizeof(struct wire_hello), 0, false, WIRE_ABOUT_NONE, NULL},
    {WIRE_OPEN, "OPEN", sizeof(struct wire_open), 0, false, WIRE_ABOUT_JAIL, wire_fields_open},
    {WIRE_EXEC, "EXEC", sizeof(struct wire_exec), WIRE_SPEC_INLINE_MAX, true, WIRE_ABOUT_EXEC,
     wire_fields_exec},
    {WIRE_KILL, "KILL", sizeof(struct wire_kill), 0, false, WIRE_ABOUT_EXEC, wire_fields_kill},
    {WIRE_CLOSE, "CLOSE", sizeof(struct wire_close), 0, false, WIRE_ABOUT_JAIL, NULL},
    {WIRE_SIGNAL, "SIGNAL", sizeof(struct wire_signal), 0, false, WIRE_ABOUT_EXEC,
     wire_fields_signal},
    {WIRE_FREEZE, "FREEZE", sizeof(struct wire_freeze), 0, false, WIRE_ABOUT_JAIL,
     wire_fields_freeze},
    {WIRE_SNAPSHOT, "SNAPSHOT", sizeof(struct wire_key), 0, false, WIRE_ABOUT_JAIL,
     wire_fields_key},
    {WIRE_RESTORE, "RESTORE", sizeof(struct wire_key), 0, false, WIRE_ABOUT_JAIL, wire_fields_key},
    {WIRE_DROP, "DROP", sizeof(struct wire_key), 0, false, WIRE_ABOUT_NONE, wire_fields_key},
    {WIRE_ADOPT, "ADOPT", sizeof(struct wire_key), 0, false, WIRE_ABOUT_JAIL, wire_fields_key},
    {WIRE_LOOK, "LOOK", sizeof(struct wire_look), 0, false, WIRE_ABOUT_NONE, wire_fields_look},
    {WIRE_WEIGH, "WEIGH", sizeof(struct wire_weigh), 0, false, WIRE_ABOUT_JAIL, wire_fields_weigh},
};

/* What a runner may send. */
static const struct wire_rule wire_replies[] = {
    {WIRE_WELCOME, "WELCOME", sizeof(struct wire_welcome), 0, false, WIRE_ABOUT_NONE,
     wire_fields_welcome},
    {WIRE_POLICY, "POLICY", sizeof(struct wire_policy), WIRE_POLICY_TEXT_MAX, false,
     WIRE_ABOUT_NONE, wire_fields_policy},
    {WIRE_CAPABILITY, "CAPABILITY", sizeof(struct wire_capability), 0, false, WIRE_ABOUT_NONE,
     wire_fields_capability},
    {WIRE_READY, "READY", sizeof(struct wire_ready), 0, false, WIRE_ABOUT_NONE, NULL},
    {WIRE_END, "END", sizeof(struct wire_end), 0, false, WIRE_ABOUT_EXEC, wire_fields_end},
    {WIRE_FAILED, "FAILED", sizeof(struct wire_failed), 0, false, WIRE_ABOUT_JAIL,
     wire_fields_failed},
    {WIRE_CLOSED, "CLOSED", sizeof(struct wire_closed), 0, false, WIRE_ABOUT_JAIL, NULL},
    {WIRE_STATE, "STATE", sizeof(struct wire_state), 0, false, WIRE_ABOUT_NONE, wire_fields_state},
    {WIRE_OPENED, "OPENED", sizeof(struct wire_opened), 0, false, WIRE_ABOUT_JAIL, NULL},
    {WIRE_STARTED, "STARTED", sizeof(struct wire_started), 0, true, WIRE_ABOUT_EXEC,
     wire_fields_started},
    {WIRE_DONE, "DONE", sizeof(struct wire_done), 0, false, WIRE_ABOUT_JAIL, wire_fields_done},
    {WIRE_KEPT, "KEPT", sizeof(struct wire_kept), 0, false, WIRE_ABOUT_NONE, wire_fields_kept},
    {WIRE_KEPT_SNAPSHOT, "KEPT_SNAPSHOT", sizeof(struct wire_kept), 0, false, WIRE_ABOUT_NONE,
     wire_fields_kept},
    {WIRE_KEPT_EXEC, "KEPT_EXEC", sizeof(struct wire_kept_exec), 0, true, WIRE_ABOUT_EXEC,
     wire_fields_kept_exec},
    {WIRE_KIND, "KIND", sizeof(struct wire_kind), 0, false, WIRE_ABOUT_NONE, wire_fields_warm_kind},
    {WIRE_SEEN, "SEEN", sizeof(struct wire_seen), 0, false, WIRE_ABOUT_JAIL, wire_fields_seen},
    {WIRE_LOOKED, "LOOKED", sizeof(struct wire_looked), 0, false, WIRE_ABOUT_NONE, NULL},
};

#define WIRE_ROWS(table) (sizeof(table) / sizeof((table)[0]))

static int wire_wrong(const struct wire_rule *rule, const char *field, struct err *err) {
    return err_set(err, ERR_PROTOCOL, 0, "a %s packet has a wrong %s", rule->name, field);
}

static int wire_check(const struct wire_rule *rules, size_t count, const void *data, size_t size,
                      size_t nfds, struct err *err) {
    const struct wire_head *head = data;
    if (size < sizeof(*head))
        return err_set(err, ERR_PROTOCOL, 0, "a packet of %zu bytes is too short", size);
    if (head->version != WIRE_VERSION)
        return err_set(err, ERR_PROTOCOL, 0, "a packet has wire version %u, not %u", head->version,
                       WIRE_VERSION);
    const struct wire_rule *rule = rules;
    while (rule < rules + count && rule->type != head->type)
        rule++;
    if (rule == rules + count)
        return err_set(err, ERR_PROTOCOL, 0, "a packet of type %u may not come here", head->type);
    if (head->size != size || size < rule->size || size - rule->size > rule->tail_max)
        return wire_wrong(rule, "size", err);
    if (nfds && !rule->fds)
        return wire_wrong(rule, "number of descriptors", err);
    if ((rule->about == WIRE_ABOUT_NONE) != (head->jail == 0))
        return wire_wrong(rule, "jail", err);
    if (head->exec && rule->about != WIRE_ABOUT_EXEC)
        return wire_wrong(rule, "exec", err);
    const char *field = rule->fields ? rule->fields(data, size - rule->size, nfds) : NULL;
    return field ? wire_wrong(rule, field, err) : 0;
}

int wire_check_request(const void *data, size_t size, size_t nfds, struct err *err) {
    return wire_check(wire_requests, WIRE_ROWS(wire_requests), data, size, nfds, err);
}

int wire_check_reply(const void *data, size_t size, size_t nfds, struct err *err) {
    return wire_check(wire_replies, WIRE_ROWS(wire_replies), data, size, nfds, err);
}

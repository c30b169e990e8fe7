#include "end_json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "str.h"
#include "text.h"

#define END_ERRNO_MAX 4095 /* the kernel's MAX_ERRNO */

void end_init(struct step_end *e, enum cause cause) {
    *e = (struct step_end){.cause = cause, .exit_code = -1};
}

bool end_ok(const struct step_end *e) {
    return e->cause == CAUSE_EXIT && e->exit_code == 0;
}

int end_exit_code(const struct step_end *e) {
    switch (e->cause) {
    case CAUSE_EXIT:
        return e->exit_code >= 0 && e->exit_code <= 255 ? e->exit_code : 125;
    case CAUSE_SIGNAL:
        return e->signal > 0 && e->signal < 128 ? 128 + e->signal : 125;
    case CAUSE_SYSCALL:
        return 128 + (e->signal > 0 && e->signal < 128 ? e->signal : SIGSYS);
    case CAUSE_WALL_TIME:
    case CAUSE_CPU_TIME:
        return 124;
    case CAUSE_MEMORY:
    case CAUSE_PIDS:
    case CAUSE_DISK:
    case CAUSE_OUTPUT:
        return 137;
    default:
        return 125;
    }
}

/* --- sentences ---------------------------------------------------------------------------------
 */

static void end_human_count(char *dst, size_t size, uint64_t count) {
    (void)snprintf(dst, size, "%" PRIu64, count);
}

static void end_message_exit(const struct step_end *e, char *dst, size_t size) {
    if (e->exit_code == 0)
        (void)snprintf(dst, size, "The program finished.");
    else
        (void)snprintf(dst, size, "The program ended with exit code %d.", e->exit_code);
}

static void end_message_signal(const struct step_end *e, char *dst, size_t size) {
    const char *name = sigabbrev_np(e->signal), *what = sigdescr_np(e->signal);
    if (name && what)
        (void)snprintf(dst, size, "The program was ended by signal %d (SIG%s: %s).", e->signal,
                       name, what);
    else
        (void)snprintf(dst, size, "The program was ended by signal %d.", e->signal);
}

static void end_message_memory(const struct step_end *e, char *dst, size_t size) {
    char share[32] = "share";
    if (e->limit > 0)
        str_human_bytes(share, sizeof(share), e->limit);
    (void)snprintf(dst, size,
                   "The program was killed because it and its files used all of its %s of memory.",
                   share);
}

static bool end_is_inodes(const struct step_end *e) {
    return e->observed == e->inodes && e->observed != e->disk_bytes;
}

static void end_message_start(const struct step_end *e, char *dst, size_t size) {
    static const struct {
        const char *stage;
        const char *what;
    } stages[] = {{"exec", "The program could not be started"},
                  {"chdir", "The working directory could not be entered"},
                  {"files", "A file of the request could not be written"}};
    char path[200], stage[80], what[120];
    const char *why = strerrordesc_np(e->code);
    str_escape(stage, sizeof(stage), e->stage, strlen(e->stage));
    (void)snprintf(what, sizeof(what), "%s%s%s%s", stages[0].what, stage[0] ? " (" : "", stage,
                   stage[0] ? ")" : "");
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++)
        if (strcmp(e->stage, stages[i].stage) == 0)
            (void)str_copy(what, sizeof(what), stages[i].what);
    str_escape(path, sizeof(path), e->path, strlen(e->path));
    (void)snprintf(dst, size, "%s: %s%s%s.", what, path, path[0] ? ": " : "",
                   e->code && why ? why : "the reason is not known");
}

static void end_message_internal(const struct step_end *e, char *dst, size_t size) {
    char stage[80];
    const char *name = strerrorname_np(e->code);
    str_escape(stage, sizeof(stage), e->stage, strlen(e->stage));
    (void)snprintf(dst, size, "The service failed%s%s%s%s%s; it is not the program's fault.",
                   stage[0] ? " at " : "", stage, e->code && name ? " (" : "",
                   e->code && name ? name : "", e->code && name ? ")" : "");
}

static const char *end_plain(enum cause cause) {
    static const char *const plain[CAUSE_COUNT] = {
        [CAUSE_NONE] = "It has not ended.",
        [CAUSE_MEMORY_HOST] = "The host ran out of memory; the program was within its own limit.",
        [CAUSE_SYSCALL] = "The program was killed for a system call that is not allowed.",
        [CAUSE_CANCELLED] = "It was cancelled on request.",
        [CAUSE_LOST_CLIENT] = "It was cancelled because the client went away.",
        [CAUSE_INTERRUPTED] = "The service stopped while the program was running.",
    };
    const char *text = cause < CAUSE_COUNT ? plain[cause] : NULL;
    return text ? text : "The cause is not known.";
}

/* Limits whose sentence is "The <name> limit of <figure> was reached." */
static void end_message_limit(const struct step_end *e, char *dst, size_t size) {
    static const struct {
        enum cause cause;
        const char *before, *after;
        void (*human)(char *dst, size_t size, uint64_t value);
    } limits[] = {
        {CAUSE_WALL_TIME, "wall-clock limit", "", str_human_ms},
        {CAUSE_CPU_TIME, "CPU time limit", "", str_human_ms},
        {CAUSE_PIDS, "limit", " on processes and threads", end_human_count},
        {CAUSE_DISK, "disk limit", "", str_human_bytes},
        {CAUSE_OUTPUT, "output limit", "", str_human_bytes},
    };
    char figure[32];
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i].cause != e->cause)
            continue;
        bool inodes = e->cause == CAUSE_DISK && end_is_inodes(e);
        (inodes ? end_human_count : limits[i].human)(figure, sizeof(figure), e->limit);
        (void)snprintf(dst, size, "The %s%s%s%s was reached.", inodes ? "limit" : limits[i].before,
                       e->limit ? " of " : "", e->limit ? figure : "",
                       inodes ? " on files and directories" : limits[i].after);
        return;
    }
    (void)snprintf(dst, size, "%s", end_plain(e->cause));
}

void end_message(const struct step_end *e, char *dst, size_t size) {
    switch (e->cause) {
    case CAUSE_EXIT:
        end_message_exit(e, dst, size);
        break;
    case CAUSE_SIGNAL:
        end_message_signal(e, dst, size);
        break;
    case CAUSE_MEMORY:
        end_message_memory(e, dst, size);
        break;
    case CAUSE_START:
        end_message_start(e, dst, size);
        break;
    case CAUSE_INTERNAL:
        end_message_internal(e, dst, size);
        break;
    default:
        end_message_limit(e, dst, size);
        break;
    }
}

/* --- evidence: one table for both directions ---------------------------------------------------
 */

struct end_figure {
    enum cause cause;
    const char *key;
    size_t offset; /* of a uint64_t in struct step_end */
};

static const struct end_figure end_figures[] = {
    {CAUSE_WALL_TIME, "wall_ms", offsetof(struct step_end, wall_ms)},
    {CAUSE_CPU_TIME, "cpu_ms", offsetof(struct step_end, cpu_ms)},
    {CAUSE_MEMORY, "oom_kills", offsetof(struct step_end, oom_kills)},
    {CAUSE_MEMORY_HOST, "oom_kills", offsetof(struct step_end, oom_kills)},
    {CAUSE_PIDS, "refused", offsetof(struct step_end, refused)},
    {CAUSE_DISK, "disk_bytes", offsetof(struct step_end, disk_bytes)},
    {CAUSE_DISK, "inodes", offsetof(struct step_end, inodes)},
    {CAUSE_OUTPUT, "bytes", offsetof(struct step_end, bytes)},
};
#define END_FIGURES (sizeof(end_figures) / sizeof(end_figures[0]))

/* All figures fit into 63 bits; a counter that does not is shown as the largest that does. */
static json_t *end_integer(uint64_t value) {
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static int end_set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new_nocheck(object, key, value);
}

static int end_set_errno(json_t *object, int code) {
    const char *name = code ? strerrorname_np(code) : NULL;
    return end_set(object, "errno", name ? json_string(name) : json_null());
}

/* A hostile text: as it is when it is UTF-8, else base64 and said so. */
static int end_set_hostile(json_t *object, const char *key, const char *text) {
    size_t len = strlen(text);
    bool cut;
    size_t whole = text_utf8_prefix(text, len, &cut);
    /* A path that fills its array was cut, perhaps in the middle of a character. */
    if (whole == len || (cut && len == END_PATH_MAX - 1))
        return end_set(object, key, json_stringn_nocheck(text, whole));
    return text_to_json(object, key, text, len);
}

static int end_evidence_start(json_t *object, const struct step_end *e) {
    if (e->cause != CAUSE_START && e->cause != CAUSE_INTERNAL)
        return 0;
    if (end_set_errno(object, e->code) != 0 || end_set_hostile(object, "stage", e->stage) != 0)
        return -1;
    return e->cause == CAUSE_START && e->path[0] ? end_set_hostile(object, "path", e->path) : 0;
}

/* Numbers of system calls mean something only with their table. */
static const char *end_arch_name(uint32_t arch) {
    switch (arch) {
    case AUDIT_ARCH_X86_64:
        return "x86_64";
    case AUDIT_ARCH_I386:
        return "i386";
    case AUDIT_ARCH_AARCH64:
        return "aarch64";
    case AUDIT_ARCH_ARM:
        return "arm";
    default:
        return "unknown";
    }
}

static int end_evidence_syscall(json_t *object, const struct step_end *e) {
    int rc = end_set(object, "signal", json_integer(e->signal ? e->signal : SIGSYS));
    if (rc == 0 && e->syscall_arch != 0) {
        rc = end_set(object, "syscall", end_integer(e->syscall_nr));
        rc |= end_set(object, "arch", json_string(end_arch_name(e->syscall_arch)));
    }
    return rc;
}

static json_t *end_evidence(const struct step_end *e) {
    json_t *object = json_object();
    int rc = 0;
    for (size_t i = 0; i < END_FIGURES && rc == 0; i++) {
        const struct end_figure *f = &end_figures[i];
        uint64_t value;
        if (f->cause != e->cause)
            continue;
        memcpy(&value, (const char *)e + f->offset, sizeof(value));
        rc = end_set(object, f->key, end_integer(value));
    }
    if (rc == 0 && e->cause == CAUSE_SYSCALL)
        rc = end_evidence_syscall(object, e);
    if (rc == 0)
        rc = end_evidence_start(object, e);
    if (rc != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *end_json_encode(const struct step_end *e) {
    char message[END_MESSAGE_MAX];
    const char *cause = cause_name(e->cause);
    json_t *object = json_object(), *evidence = end_evidence(e);
    end_message(e, message, sizeof(message));
    int rc = end_set(object, "cause", json_string(cause ? cause : "internal"));
    rc |=
        end_set(object, "exit_code", e->exit_code >= 0 ? json_integer(e->exit_code) : json_null());
    rc |= end_set(object, "signal", e->signal > 0 ? json_integer(e->signal) : json_null());
    if (e->limit > 0) {
        rc |= end_set(object, "limit", end_integer(e->limit));
        rc |= end_set(object, "observed", end_integer(e->observed));
    }
    if (!evidence || json_object_size(evidence) > 0)
        rc |= end_set(object, "evidence", json_incref(evidence));
    rc |= end_set(object, "message", json_string(message));
    json_decref(evidence);
    if (rc != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* --- decode ------------------------------------------------------------------------------------
 */

static int end_get_int(const json_t *object, const char *key, int none, int max, int *out,
                       struct err *err) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) {
        *out = none;
        return 0;
    }
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > max)
        return err_set(err, ERR_INVALID, 0, "end.%s is not a number from 0 to %d", key, max);
    *out = (int)number;
    return 0;
}

static int end_get_u64(const json_t *object, const char *key, uint64_t *out, struct err *err) {
    const json_t *value = json_object_get(object, key);
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return err_set(err, ERR_INVALID, 0, "end: %s is not a whole number", key);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int end_get_errno(const json_t *evidence, int *out, struct err *err) {
    const json_t *value = json_object_get(evidence, "errno");
    if (!value || json_is_null(value))
        return 0;
    const char *name = json_string_value(value);
    if (!name)
        return err_set(err, ERR_INVALID, 0, "end.evidence.errno is not a string");
    for (int code = 1; code <= END_ERRNO_MAX; code++) {
        const char *known = strerrorname_np(code);
        if (known && strcmp(known, name) == 0)
            *out = code;
    }
    return 0;
}

static int end_get_text(const json_t *evidence, const char *key, char *dst, size_t size,
                        struct err *err) {
    struct buf text;
    if (!json_object_get(evidence, key))
        return 0;
    buf_init(&text, 65536);
    int rc = text_from_json(evidence, key, &text, err);
    if (rc == 0 && text.data)
        (void)snprintf(dst, size, "%s", text.data);
    buf_done(&text);
    return rc;
}

static int end_get_evidence(const json_t *evidence, struct step_end *e, struct err *err) {
    for (size_t i = 0; i < END_FIGURES; i++) {
        const struct end_figure *f = &end_figures[i];
        uint64_t value = 0;
        if (f->cause != e->cause)
            continue;
        if (end_get_u64(evidence, f->key, &value, err) != 0)
            return -1;
        memcpy((char *)e + f->offset, &value, sizeof(value));
    }
    if (e->cause != CAUSE_START && e->cause != CAUSE_INTERNAL)
        return 0;
    if (end_get_errno(evidence, &e->code, err) != 0 ||
        end_get_text(evidence, "stage", e->stage, sizeof(e->stage), err) != 0)
        return -1;
    return end_get_text(evidence, "path", e->path, sizeof(e->path), err);
}

int end_json_decode(const json_t *object, struct step_end *out, struct err *err) {
    struct step_end e;
    const char *name = json_string_value(json_object_get(object, "cause"));
    end_init(&e, name ? cause_by_name(name) : CAUSE_NONE);
    if (e.cause == CAUSE_NONE)
        return err_set(err, ERR_INVALID, 0, "end has no cause that is known");
    if (end_get_int(object, "exit_code", -1, 255, &e.exit_code, err) != 0 ||
        end_get_int(object, "signal", 0, 127, &e.signal, err) != 0 ||
        end_get_u64(object, "limit", &e.limit, err) != 0 ||
        end_get_u64(object, "observed", &e.observed, err) != 0)
        return -1;
    if (end_get_evidence(json_object_get(object, "evidence"), &e, err) != 0)
        return -1;
    *out = e;
    return 0;
}

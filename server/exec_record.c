#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "execs.h"
#include "execution.h"
#include "receipt_exec.h"
#include "str.h"

/* The records of the journal, in host byte order: only this machine reads them. */

struct exec_record_started {
    uint64_t created_ms;
    struct limits_effective limits;
    uint8_t hash[EXEC_HASH_SIZE];
    uint32_t flags;
    uint32_t end_on;
    uint16_t rows, cols;
    uint16_t name_len, command_len; /* NUL-terminated texts that follow, with their NUL, and behind
                                       them a struct exec_record_asked */
    char id[EXEC_ID_SIZE];
};

/* Older servers wrote less of it, or nothing. What a receipt needs may follow. */
struct exec_record_asked {
    struct trace trace;
    char token[ACCOUNTS_TOKEN_ID_SIZE]; /* "" = of nobody who is known */
};

enum exec_record_file {
    EXEC_RECORD_OUT = 1, /* its stdout has a file */
    EXEC_RECORD_ERR = 2,
    EXEC_RECORD_EVENTS = 4,
    EXEC_RECORD_BARE = 8, /* what has no file is not here: there was no room for it */
    EXEC_RECORD_HEADS =
        16, /* a file has a gap: where each head ends follows, a uint64_t for each */
};

/* Then follow: the heads' ends, the events that wait, stdout and stderr as far as they have no
 * file. */
struct exec_record_ended {
    uint64_t ended_ms;
    uint64_t setup_ns;
    uint64_t stdin_bytes;
    uint64_t total[SPOOL_STREAMS];
    uint64_t gone[SPOOL_STREAMS + 1]; /* the last one: of the events' file */
    uint64_t events;
    uint32_t files; /* mask of enum exec_record_file */
    uint32_t others;
    struct wire_usage usage;
    struct step_end end;
};

struct exec_record_parts {
    const struct iovec *part;
    size_t count;
    struct spool_log_place *place; /* where it lies then; NULL = nobody asks */
};

/* How much of it there is the inlet says, as long as it is open. */
struct exec_record_stdin {
    uint64_t bytes;
    uint32_t closed;
    uint32_t reserved;
};

#define EXEC_RECORD_HEADS_SIZE (SPOOL_STREAMS * sizeof(uint64_t))

/* Room for an end without output. */
#define EXEC_RECORD_END_ROOM                                                                       \
    (sizeof(struct exec_record_ended) + EXEC_RECORD_HEADS_SIZE +                                   \
     SPOOL_EVENTS_WAIT * sizeof(struct spool_event) + SPOOL_LOG_OVERHEAD)

int exec_record_room(struct spool_log *log, size_t ends, uint64_t bytes, struct err *err) {
    if (spool_log_open(log, err) < 0)
        return -1;
    return spool_log_room(log, bytes + ends * EXEC_RECORD_END_ROOM, err);
}

/* Nothing takes the room away in which the ends of those that run, `ends`, will be written. */
static int exec_record_append(struct exec *x, enum spool_log_type type, size_t ends,
                              struct exec_record_parts p, struct err *err) {
    struct spool_log *log = &x->set->log;
    uint64_t bytes = SPOOL_LOG_OVERHEAD;
    for (size_t i = 0; i < p.count; i++)
        bytes += p.part[i].iov_len;
    if (exec_record_room(log, ends, bytes, err) < 0)
        return -1;
    return spool_log_append(log, type, x->number, p.part, p.count, p.place, err);
}

int exec_record_start(struct exec *x, struct err *err) {
    struct exec_record_started r;
    memset(&r, 0, sizeof(r));
    r.created_ms = x->created_ms;
    r.limits = x->limits;
    memcpy(r.hash, x->hash, sizeof(r.hash));
    r.flags = x->flags;
    r.end_on = x->end_on;
    r.rows = x->rows;
    r.cols = x->cols;
    r.name_len = (uint16_t)(strlen(x->name) + 1);
    r.command_len = (uint16_t)(strlen(x->command) + 1);
    str_copy(r.id, sizeof(r.id), x->id);
    struct exec_record_asked asked;
    memset(&asked, 0, sizeof(asked));
    asked.trace = x->trace;
    if (x->token != NULL)
        str_copy(asked.token, sizeof(asked.token), x->token->id);
    struct iovec parts[] = {{.iov_base = &r, .iov_len = sizeof(r)},
                            {.iov_base = x->name, .iov_len = r.name_len},
                            {.iov_base = x->command, .iov_len = r.command_len},
                            {.iov_base = &asked, .iov_len = sizeof(asked)},
                            {.iov_base = NULL}};
    if (x->receipt != NULL)
        parts[4] = receipt_exec_bytes(x->receipt);
    struct exec_record_parts all = {parts, x->receipt != NULL ? 5 : 4, &x->start_place};
    return exec_record_append(x, SPOOL_LOG_START, x->set->running + 1, all, err);
}

/* Of a stream without a file: how many bytes lie in the END. What a full disk did not take is lost,
 * and counted. */
static uint64_t exec_record_inside(const struct spool *s, bool bare) {
    return spool_has_file(s) || bare ? 0 : s->total - s->gone;
}

/* Where the parts of an END lie that has been written or read. */
static void exec_record_place(struct exec *x, uint64_t events) {
    uint64_t at = x->end_place.at + sizeof(struct exec_record_ended) +
                  (x->heads ? EXEC_RECORD_HEADS_SIZE : 0);
    const int *host = &x->set->log.fd;
    if (!spool_has_file(&x->events.file)) {
        x->events.file.host = host;
        x->events.file.host_at = at;
        at += events * sizeof(struct spool_event);
    }
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool *s = &x->out[i].spool;
        if (spool_has_file(s) || x->bare)
            continue;
        s->host = host;
        s->host_at = at;
        at += exec_record_inside(s, false);
    }
}

void exec_record_moved(struct exec *x) {
    if (x->state == EXEC_DONE && x->end_place.len > 0)
        exec_record_place(x, x->events.count);
}

/* Nothing of it is kept, as if it had been over the cap from the first byte. */
static void exec_record_lose(struct spool *s) {
    s->head_max = s->tail_keep = 0;
    s->gone = s->total;
}

int exec_record_end_bare(struct exec *x, struct err *err) {
    for (int i = 0; i < SPOOL_STREAMS; i++)
        if (!spool_has_file(&x->out[i].spool))
            exec_record_lose(&x->out[i].spool);
    return exec_record_end(x, NULL, err);
}

int exec_record_end(struct exec *x, const struct exec_record_rest *rest, struct err *err) {
    struct exec_record_ended r;
    memset(&r, 0, sizeof(r));
    struct spool *out = &x->out[SPOOL_STDOUT].spool, *errs = &x->out[SPOOL_STDERR].spool;
    uint64_t heads[SPOOL_STREAMS] = {out->head_max, errs->head_max};
    bool file = spool_has_file(&x->events.file);
    x->heads = (spool_has_file(out) && out->gone > 0) || (spool_has_file(errs) && errs->gone > 0);
    r.ended_ms = x->ended_ms;
    r.setup_ns = x->setup_ns;
    r.stdin_bytes = x->input.bytes;
    r.others = x->others;
    r.total[SPOOL_STDOUT] = out->total;
    r.total[SPOOL_STDERR] = errs->total;
    r.gone[SPOOL_STDOUT] = out->gone;
    r.gone[SPOOL_STDERR] = errs->gone;
    r.gone[SPOOL_STREAMS] = x->events.file.gone;
    /* On a full disk the newest did not come into it. */
    r.events = x->events.count - (file ? x->events.wait_count : 0);
    r.files = (spool_has_file(out) ? (uint32_t)EXEC_RECORD_OUT : 0u) |
              (spool_has_file(errs) ? (uint32_t)EXEC_RECORD_ERR : 0u) |
              (file ? (uint32_t)EXEC_RECORD_EVENTS : 0u) |
              (rest == NULL ? (uint32_t)EXEC_RECORD_BARE : 0u) |
              (x->heads ? (uint32_t)EXEC_RECORD_HEADS : 0u);
    r.usage = x->usage;
    r.end = x->end;
    struct iovec parts[5] = {
        {.iov_base = &r, .iov_len = sizeof(r)},
        {.iov_base = heads, .iov_len = x->heads ? sizeof(heads) : 0},
        {.iov_base = x->events.wait,
         .iov_len = file ? 0 : x->events.wait_count * sizeof(struct spool_event)}};
    for (int i = 0; rest != NULL && i < SPOOL_STREAMS; i++)
        parts[3 + i] =
            (struct iovec){.iov_base = (void *)(uintptr_t)rest->data[i], .iov_len = rest->len[i]};
    struct exec_record_parts all = {parts, 5, &x->end_place};
    size_t others = x->set->running > 0 ? x->set->running - 1 : 0;
    if (exec_record_append(x, SPOOL_LOG_END, others, all, err) < 0)
        return -1;
    x->bare = rest == NULL;
    exec_record_place(x, x->events.count);
    if (!file) {
        /* They are read from the journal like everything else. */
        x->events.file.total = x->events.wait_count * sizeof(struct spool_event);
        free(x->events.wait);
        x->events.wait = NULL;
        x->events.wait_count = 0;
    }
    return 0;
}

int exec_record_input(struct exec *x, struct err *err) {
    if (exec_record_room(&x->set->log, x->set->running,
                         sizeof(struct exec_record_stdin) + SPOOL_LOG_OVERHEAD, err) < 0)
        return -1;
    return exec_record_input_to(x, &x->set->log, err);
}

int exec_record_input_to(struct exec *x, struct spool_log *log, struct err *err) {
    struct exec_record_stdin r = {.bytes = x->input.bytes, .closed = !x->input.open};
    struct iovec part = {.iov_base = &r, .iov_len = sizeof(r)};
    return spool_log_append(log, SPOOL_LOG_INPUT, x->number, &part, 1, NULL, err);
}

int exec_record_forget(struct exec *x, struct err *err) {
    return exec_record_append(x, SPOOL_LOG_FORGET, x->set->running, (struct exec_record_parts){0},
                              err);
}

/* Reading. */

static bool exec_record_text_ok(const char *text, size_t len, size_t max) {
    return len >= 1 && len <= max && text[len - 1] == '\0' && strlen(text) == len - 1;
}

struct exec *exec_record_read_start(struct execs *set, const struct spool_log_record *rec) {
    struct exec_record_started r;
    if (rec->place.len < sizeof(r))
        return NULL;
    memcpy(&r, rec->payload, sizeof(r));
    const char *name = rec->payload + sizeof(r), *command = name + r.name_len;
    struct exec_record_asked asked = {0};
    size_t texts = sizeof(r) + r.name_len + (size_t)r.command_len;
    size_t rest = rec->place.len - texts;
    if (rec->place.len < texts ||
        (rest != 0 && rest != sizeof(asked.trace) && rest < sizeof(asked)) ||
        !exec_record_text_ok(name, r.name_len, EXEC_NAME_SIZE) ||
        !exec_record_text_ok(command, r.command_len, EXEC_COMMAND_SIZE) ||
        r.id[sizeof(r.id) - 1] != '\0' || !exec_request_id_ok(r.id))
        return NULL;
    memcpy(&asked, rec->payload + texts, rest < sizeof(asked) ? rest : sizeof(asked));
    asked.trace.from[sizeof(asked.trace.from) - 1] = '\0';
    asked.token[sizeof(asked.token) - 1] = '\0';
    struct exec_birth birth = {.id = r.id,
                               .name = name,
                               .command = command,
                               .hash = r.hash,
                               .limits = &r.limits,
                               .trace = &asked.trace,
                               .flags = r.flags,
                               .end_on = r.end_on,
                               .rows = r.rows,
                               .cols = r.cols};
    struct exec *x = exec_new(set, &birth, NULL);
    if (x == NULL)
        return NULL;
    if (set->hub->accounts != NULL && asked.token[0] != '\0')
        x->token = accounts_token_ref(accounts_token_find(set->hub->accounts, asked.token));
    x->task.token = x->token;
    if (rest > sizeof(asked))
        x->receipt = receipt_exec_read(rec->payload + texts + sizeof(asked), rest - sizeof(asked));
    x->created_ms = r.created_ms;
    x->number = rec->number;
    x->task.number = rec->number;
    x->start_place = rec->place;
    x->input.open = (r.flags & (EXEC_PTY | EXEC_STDIN_OPEN)) != 0;
    return x;
}

static void exec_record_take_file(struct exec *x, struct spool *s, enum exec_io_file which,
                                  uint64_t total, uint64_t gone) {
    exec_io_name(x, which, s->name);
    s->total = total;
    s->gone = gone;
}

int exec_record_read_end(struct exec *x, const struct spool_log_record *rec) {
    struct exec_record_ended r;
    if (x->state == EXEC_DONE || rec->place.len < sizeof(r))
        return -1;
    memcpy(&r, rec->payload, sizeof(r));
    uint64_t inside = (r.files & EXEC_RECORD_EVENTS) != 0 ? 0 : r.events;
    bool bare = (r.files & EXEC_RECORD_BARE) != 0;
    uint64_t out = 0, err = 0;
    if (!bare && (r.files & EXEC_RECORD_OUT) == 0)
        out = r.total[SPOOL_STDOUT] - r.gone[SPOOL_STDOUT];
    if (!bare && (r.files & EXEC_RECORD_ERR) == 0)
        err = r.total[SPOOL_STDERR] - r.gone[SPOOL_STDERR];
    uint64_t heads[SPOOL_STREAMS] = {UINT64_MAX, UINT64_MAX};
    size_t more = (r.files & EXEC_RECORD_HEADS) != 0 ? sizeof(heads) : 0;
    if (inside > SPOOL_EVENTS_WAIT || out > EXEC_INLINE_MAX || err > EXEC_INLINE_MAX ||
        r.gone[SPOOL_STDOUT] > r.total[SPOOL_STDOUT] ||
        r.gone[SPOOL_STDERR] > r.total[SPOOL_STDERR] ||
        rec->place.len != sizeof(r) + more + inside * sizeof(struct spool_event) + out + err ||
        r.end.cause >= CAUSE_COUNT || r.end.stage[sizeof(r.end.stage) - 1] != '\0' ||
        r.end.path[sizeof(r.end.path) - 1] != '\0')
        return -1;
    memcpy(heads, rec->payload + sizeof(r), more);
    x->heads = more > 0;
    x->ended_ms = r.ended_ms;
    x->setup_ns = r.setup_ns;
    x->others = r.others;
    x->usage = r.usage;
    x->end = r.end;
    x->ok = end_ok(&x->end);
    x->input.bytes = x->input.queued = r.stdin_bytes;
    x->input.open = false;
    x->end_place = rec->place;
    x->state = EXEC_DONE;
    x->bare = bare;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool *s = &x->out[i].spool;
        s->total = r.total[i];
        if ((r.files & (i == SPOOL_STDOUT ? EXEC_RECORD_OUT : EXEC_RECORD_ERR)) != 0)
            exec_record_take_file(x, s, i == SPOOL_STDOUT ? EXEC_IO_OUT : EXEC_IO_ERR, r.total[i],
                                  r.gone[i]);
        else if (bare || r.gone[i] > 0)
            exec_record_lose(s);
        spool_end_head(s, heads[i]);
    }
    if ((r.files & EXEC_RECORD_EVENTS) != 0) {
        exec_record_take_file(x, &x->events.file, EXEC_IO_EVENTS,
                              r.events * sizeof(struct spool_event), r.gone[SPOOL_STREAMS]);
        x->events.count = r.events;
        x->events.sealed = true;
        memcpy(x->events.end, r.total, sizeof(r.total));
    } else {
        spool_events_load_part(&x->events, &x->set->log.fd, 0, r.events, r.total);
    }
    exec_record_place(x, r.events);
    return 0;
}

void exec_record_read_input(struct exec *x, const struct spool_log_record *rec) {
    struct exec_record_stdin r;
    if (rec->place.len != sizeof(r) || x->state == EXEC_DONE)
        return;
    memcpy(&r, rec->payload, sizeof(r));
    x->input.bytes = x->input.queued = r.bytes;
    x->input.open = r.closed == 0;
    x->input.ending = r.closed != 0;
}

#include "exec_input.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXEC_INPUT_READ ((size_t)64 * 1024)
#define EXEC_INPUT_ANSWER_MAX ((size_t)64 * 1024)

void exec_input_init(struct exec_input *in, int fd, struct escape *escape) {
    *in = (struct exec_input){.fd = fd, .escape = escape, .over = fd < 0};
    buf_init(&in->flight, EXEC_INPUT_MAX + 1);
    buf_init(&in->next, EXEC_INPUT_MAX + 1);
    buf_init(&in->answer, EXEC_INPUT_ANSWER_MAX);
}

void exec_input_done(struct exec_input *in) {
    if (in == NULL)
        return;
    buf_done(&in->flight);
    buf_done(&in->next);
    buf_done(&in->answer);
}

bool exec_input_wants(const struct exec_input *in) {
    return !in->over && !in->eof && !in->left && in->next.len + EXEC_INPUT_READ <= EXEC_INPUT_MAX;
}

static int exec_input_take(struct exec_input *in, const char *data, size_t len, struct err *err) {
    char *to;

    if (in->escape == NULL)
        return buf_append(&in->next, data, len, err);
    to = buf_reserve(&in->next, len + 1, err);
    if (to == NULL)
        return -1;
    in->next.len += escape_feed(in->escape, data, len, to, &in->left);
    return 0;
}

int exec_input_read(struct exec_input *in, struct err *err) {
    struct pollfd ready = {.fd = in->fd, .events = POLLIN};
    char data[EXEC_INPUT_READ];
    ssize_t got;

    if (!exec_input_wants(in) || poll(&ready, 1, 0) <= 0)
        return 0;
    got = read(in->fd, data, sizeof(data));
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    /* A terminal that has gone gives EIO: the end of the input, and SIGHUP says the rest. */
    if (got < 0 && errno != EIO)
        return err_sys(err, "cannot read the input");
    if (got <= 0) {
        in->eof = true;
        return 0;
    }
    return exec_input_take(in, data, (size_t)got, err);
}

struct rest_call *exec_input_call(struct exec_input *in, const char *sandbox, const char *id,
                                  uint64_t now_ms) {
    if (in->over || now_ms < in->again_ms)
        return NULL;
    if (in->flight.len == 0) {
        struct buf empty = in->flight;

        in->flight = in->next;
        in->next = empty;
    }
    in->closing = in->eof && in->next.len == 0;
    if (in->flight.len == 0 && !in->closing)
        return NULL;
    snprintf(in->path, sizeof(in->path), "/v1/sandboxes/%s/exec/%s/stdin?offset=%" PRIu64 "%s",
             sandbox, id, in->offset, in->closing ? "&close=true" : "");
    buf_clear(&in->answer);
    in->call = (struct rest_call){.method = "POST",
                                  .path = in->path,
                                  .body = in->flight.len > 0 ? in->flight.data : "",
                                  .body_len = in->flight.len,
                                  .raw = true,
                                  .on_data = rest_gather,
                                  .arg = &in->answer};
    return &in->call;
}

/* How many bytes the server has altogether, as its answer counts; UINT64_MAX = it does not. */
static uint64_t exec_input_total(const struct exec_input *in) {
    json_t *answer =
        json_loadb(in->answer.data != NULL ? in->answer.data : "", in->answer.len, 0, NULL);
    const json_t *total = json_object_get(answer, "stdin_bytes");
    json_int_t value = json_integer_value(total);
    uint64_t have = json_is_integer(total) && value >= 0 ? (uint64_t)value : UINT64_MAX;

    json_decref(answer);
    return have;
}

static void exec_input_delivered(struct exec_input *in, uint64_t now_ms) {
    uint64_t have = exec_input_total(in), sent = in->offset + in->flight.len;
    bool again = resume_heard(&in->resume);
    size_t taken = in->flight.len;

    in->again_ms = 0;
    if (have != UINT64_MAX && have > sent && in->escape != NULL && !again) {
        /* Somebody else types into the same terminal: ours goes behind his. */
        in->offset = have;
        return;
    }
    if (have < sent)
        taken = have > in->offset ? (size_t)(have - in->offset) : 0;
    /* None taken: there is no room at present. */
    if (taken == 0 && in->flight.len > 0)
        in->again_ms = now_ms + RESUME_FIRST_MS;
    in->offset += taken;
    if (have != UINT64_MAX && have > in->offset && in->escape != NULL)
        in->offset = have;
    buf_consume(&in->flight, taken);
    in->over = in->closing && in->flight.len == 0;
}

int exec_input_answer(struct exec_input *in, int rc, uint64_t now_ms, struct err *err) {
    int status = rc == 0 ? in->call.status : 0;
    int pause;

    if (status != 0 && status < 400) {
        exec_input_delivered(in, now_ms);
        return 0;
    }
    /* A sandbox that is paused takes it when it goes on. */
    if (resume_worth(status) || (status == 409 && strcmp(in->call.error.code, "paused") == 0)) {
        pause = resume_pause(&in->resume, now_ms);
        /* How long to go on trying is decided by whoever follows the execution. */
        in->again_ms = now_ms + (pause < 0 ? RESUME_MOST_MS : (uint64_t)pause);
        return 0;
    }
    in->over = true;
    if (status == 404 || status == 409 || status == 410)
        return 0;
    rest_refusal(&in->call, err);
    return err_wrap(err, "the input was not delivered");
}

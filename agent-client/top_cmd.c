#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client_cmd.h"
#include "fd.h"
#include "intr.h"
#include "say.h"
#include "simple_cmd.h"
#include "top_view.h"
#include "tty.h"

#define TOP_ANSWER_MAX ((size_t)16 * 1024 * 1024)
#define TOP_EVERY_MS 2000u
#define TOP_FRAME_MAX ((size_t)4 * 1024 * 1024)

/* The other screen, without a cursor; and back. */
#define TOP_ENTER "\x1b[?1049h\x1b[?25l\x1b[2J"
#define TOP_LEAVE "\x1b[?25h\x1b[?1049l"

struct top_cmd {
    struct target target;
    struct rest *rest;
    struct rest_hooks hooks;
    struct tty tty;
    struct intr intr;
    uint64_t limit, every_ms;
    struct buf text; /* what is shown, as lines */
    bool quit;       /* a key, or a signal */
    bool again;      /* paint at once: another size, or a key */
    int signal;
};

static size_t top_cmd_want(void *arg, struct pollfd fds[REST_WAIT_MAX]) {
    struct top_cmd *c = arg;

    fds[0] = (struct pollfd){.fd = c->intr.fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = c->tty.changes, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = c->tty.fd, .events = POLLIN};
    return 3;
}

/* 3 and 4 are Ctrl-C and Ctrl-D, which are keys in a raw terminal. A terminal that is gone ends it,
 * too. */
static void top_cmd_keys(struct top_cmd *c) {
    char keys[64];
    struct pollfd p = {.fd = c->tty.fd, .events = POLLIN};

    if (poll(&p, 1, 0) <= 0)
        return;
    ssize_t n = read(c->tty.fd, keys, sizeof(keys));
    c->quit = c->quit || n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    for (ssize_t i = 0; i < n; i++)
        if (keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 3 || keys[i] == 4)
            c->quit = true;
    c->again = true;
}

static int top_cmd_ready(void *arg, struct err *err) {
    struct top_cmd *c = arg;
    int number = intr_take(&c->intr);

    if (number != 0) {
        c->signal = number;
        c->quit = true;
    }
    if (tty_changed(&c->tty))
        c->again = true;
    top_cmd_keys(c);
    return c->quit ? err_set(err, ERR_STATE, EINTR, "interrupted") : 0;
}

static json_t *top_cmd_fetch(struct top_cmd *c, struct err *err) {
    char path[64];

    snprintf(path, sizeof(path), "/v1/top?limit=%" PRIu64, c->limit);
    return rest_get_json(c->rest, path, TOP_ANSWER_MAX, err);
}

/* One frame for scripts and files. */
static int top_cmd_once(struct top_cmd *c, bool json, struct err *err) {
    json_t *answer = top_cmd_fetch(c, err);
    int rc = answer != NULL ? 0 : -1;

    if (rc == 0 && json) {
        rc = json_dumpf(answer, stdout, JSON_INDENT(1));
        putchar('\n');
    } else if (rc == 0) {
        rc = top_view_write(&c->text, answer, c->target.url, err);
        if (rc == 0)
            fputs(c->text.data, stdout);
    }
    json_decref(answer);
    if (rc == 0 && fflush(stdout) != 0)
        return err_sys(err, "writing to stdout");
    return rc;
}

/* What is there stays while the server is away, under a line that says so. */
static void top_cmd_look(struct top_cmd *c) {
    struct err err = {0};
    json_t *answer = top_cmd_fetch(c, &err);
    char clean[512];

    if (c->quit) {
        json_decref(answer);
        return;
    }
    buf_clear(&c->text);
    if (answer == NULL || top_view_write(&c->text, answer, c->target.url, &err) < 0) {
        buf_clear(&c->text);
        (void)buf_printf(&c->text, NULL, "pinfold: %s\n",
                         say_clean(clean, sizeof(clean), err.text));
    }
    json_decref(answer);
}

static int top_cmd_paint(struct top_cmd *c, struct err *err) {
    unsigned rows, cols;
    struct buf frame;

    tty_size(STDOUT_FILENO, &rows, &cols);
    buf_init(&frame, TOP_FRAME_MAX);
    int rc = top_view_paint(&frame, c->text.data, rows, cols, err);
    if (rc == 0)
        rc = fd_write_all(STDOUT_FILENO, frame.data, frame.len, err);
    buf_done(&frame);
    return rc;
}

static int top_cmd_wait(struct top_cmd *c, struct err *err) {
    uint64_t left = c->every_ms;

    while (!c->quit && left > 0) {
        uint64_t part = left < 500 ? left : 500;
        c->again = false;
        if (rest_idle(c->rest, (int)part, err) < 0)
            return c->quit ? 0 : -1;
        if (c->again && top_cmd_paint(c, err) < 0)
            return -1;
        left -= part;
    }
    return 0;
}

static int top_cmd_live(struct top_cmd *c, struct err *err) {
    int rc = 0;

    if (fd_write_all(STDOUT_FILENO, TOP_ENTER, sizeof(TOP_ENTER) - 1, err) < 0)
        return -1;
    while (!c->quit && rc == 0) {
        top_cmd_look(c);
        if (!c->quit)
            rc = top_cmd_paint(c, err);
        if (!c->quit && rc == 0)
            rc = top_cmd_wait(c, err);
    }
    (void)fd_write_all(STDOUT_FILENO, TOP_LEAVE, sizeof(TOP_LEAVE) - 1, NULL);
    return rc;
}

static int top_cmd_do(struct top_cmd *c, bool once, bool json, struct err *err) {
    if (target_from_env(&c->target, err) < 0)
        return -1;
    if (once || json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        c->rest = rest_new(&c->target, NULL, err);
        return c->rest != NULL ? top_cmd_once(c, json, err) : -1;
    }
    c->hooks = (struct rest_hooks){top_cmd_want, top_cmd_ready, c};
    if (intr_begin(&c->intr, err) < 0 || tty_begin(&c->tty, STDIN_FILENO, err) < 0)
        return -1;
    c->rest = rest_new(&c->target, &c->hooks, err);
    return c->rest != NULL ? top_cmd_live(c, err) : -1;
}

static int top_cmd_run(int argc, char **argv) {
    struct top_cmd c = {.tty = TTY_NONE, .intr = INTR_NONE, .limit = 100, .every_ms = TOP_EVERY_MS};
    bool once = false, json = false;
    const struct opt table[] = {
        {"once", 0, NULL, OPT_FLAG, &once, 0, 0, "one look as plain text, for scripts"},
        {"json", 0, NULL, OPT_FLAG, &json, 0, 0, "one look as JSON"},
        {"every", 0, "TIME", OPT_DURATION, &c.every_ms, 200, 3600000, "between two looks (2s)"},
        {"limit", 0, "N", OPT_U64, &c.limit, 1, 1000, "rows of runs and of sandboxes (100)"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "top",
        .usage = "pinfold top [--every TIME] [--limit N] [--once|--json]",
        .about =
            "What runs and waits now: your runs and sandboxes, or everybody's when you are an\n"
            "administrator. q ends it.\n\n"
            "CPU is what a run has used so far, NOW its share of a processor since the look\n"
            "before, MEM its memory now (the most that it took, when nothing runs), LIMIT what\n"
            "it may take.",
        .table = table,
    };
    struct err err = {0};
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    buf_init(&c.text, TOP_VIEW_MAX);
    rc = top_cmd_do(&c, once, json, &err);
    tty_end(&c.tty);
    if (rc < 0)
        say_line("%s", err.text);
    rest_free(c.rest);
    buf_done(&c.text);
    target_done(&c.target);
    intr_end(&c.intr);
    if (c.signal != 0)
        return 128 + c.signal;
    return rc < 0 ? CLIENT_EXIT_TROUBLE : 0;
}

const struct client_cmd top_cmd = {
    .name = "top",
    .about = "a live table of what runs and waits",
    .run = top_cmd_run,
};

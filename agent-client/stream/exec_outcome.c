#include "exec_outcome.h"

#include <stdio.h>
#include <string.h>

#include "client_exit.h"
#include "say.h"

static int exec_outcome_over(struct exec_stream *s) {
    const struct run_body body = {.step_count = 1};
    char why[1024];

    if (!s->ends.steps[0].ended) {
        say_line("the execution ended without a result");
        return CLIENT_EXIT_TROUBLE;
    }
    run_ends_explain(&s->ends, &body, s->ok, why, sizeof(why));
    if (why[0] != '\0')
        say_line("%s", why);
    return run_ends_exit_code(&s->ends, &body, s->ok);
}

static int exec_outcome_stopped(const struct exec_stream *s, enum exec_stop stop,
                                const struct err *err) {
    switch (stop) {
    case EXEC_STOP_LEFT:
        say_line("left %s running; pinfold shell %s --attach %s comes back to it", s->id,
                 s->sandbox, s->id);
        return 0;
    case EXEC_STOP_SIGNAL:
        if (s->keep)
            say_line("%s goes on; pinfold shell %s --attach %s comes back to it", s->id, s->sandbox,
                     s->id);
        return 128 + s->signal;
    case EXEC_STOP_PIPE:
        return EXEC_OUTCOME_PIPE;
    case EXEC_STOP_AWAY:
        say_line("%s; nothing was run", err->text);
        return CLIENT_EXIT_TROUBLE;
    case EXEC_STOP_LOST:
        say_line("%s; what became of it: pinfold sandbox logs %s %s", err->text, s->sandbox, s->id);
        return CLIENT_EXIT_TROUBLE;
    default:
        say_line("%s", err->text);
        return CLIENT_EXIT_TROUBLE;
    }
}

/* What the program left switched on in our terminal is switched off. */
static void exec_outcome_tidy(struct exec_stream *s) {
    char reset[MODES_RESET_MAX];
    size_t len = modes_reset(&s->modes, reset);
    struct err err = {0};

    if (len > 0 && outq_put(&s->outq[0], reset, len, &err) == 0)
        (void)outq_drain(&s->outq[0], &err);
}

int exec_outcome(struct exec_stream *s, enum exec_stop stop, struct err *err) {
    struct err late = {0};

    if (stop == EXEC_STOP_DONE) {
        stop = exec_stream_drain(s, &late);
        err = &late;
    } else if (stop == EXEC_STOP_LOST || stop == EXEC_STOP_LEFT) {
        /* What had been printed before the connection broke still belongs to the user. */
        (void)exec_stream_drain(s, &late);
    }
    exec_outcome_tidy(s);
    return stop == EXEC_STOP_DONE ? exec_outcome_over(s) : exec_outcome_stopped(s, stop, err);
}

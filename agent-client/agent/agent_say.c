#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "agent_text.h"
#include "ask.h"
#include "clock.h"
#include "say.h"

#define AGENT_SAY_SHOWN 12u   /* lines of a result that people see */
#define AGENT_SAY_ASKED 1500u /* bytes of what a person is asked for */

json_t *agent_say_string(const char *text) {
    struct buf clean;
    buf_init(&clean, strlen(text) + 1);
    (void)agent_text_clean(&clean, text, strlen(text), NULL);
    json_t *string = json_string(clean.data != NULL ? clean.data : "");
    buf_done(&clean);
    return string;
}

void agent_say_wait(struct agent *a, const char *what) {
    char line[200];
    if (a->o.json || isatty(STDERR_FILENO) != 1)
        return;
    snprintf(line, sizeof(line),
             "\r\033[K[request %" PRIu64 " of %" PRIu64 ", %" PRIu64 " tokens, %.4f USD, %" PRIu64
             " s] %s",
             a->iterations, a->o.max_iters, a->tokens, (double)a->micro_usd / 1e6,
             (a->spent_ms + clock_mono_ms() - a->begun_ms) / 1000, what);
    fflush(stdout);
    a->waiting = write(STDERR_FILENO, line, strlen(line)) > 0;
}

/* Nothing is printed behind the line that says what is waited for. */
static void agent_say_wipe(struct agent *a) {
    if (a->waiting && write(STDERR_FILENO, "\r\033[K", 4) > 0)
        a->waiting = false;
}

void agent_say_event(struct agent *a, const char *type, json_t *more) {
    if (a->o.json) {
        json_t *event = json_pack("{s:s}", "type", type);
        if (more != NULL)
            json_object_update(event, more);
        json_dumpf(event, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(event);
    }
    json_decref(more);
}

void agent_say_text(struct agent *a, const char *text, size_t len) {
    char piece[512];
    if (a->o.json)
        return; /* the whole text comes as an event */
    agent_say_wipe(a);
    while (len > 0) {
        size_t n = len < sizeof(piece) - 1 ? len : sizeof(piece) - 1;
        /* Not in the middle of a character. */
        while (n > 1 && n < len && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
        size_t line = strcspn(text, "\n");
        if (line == 0) {
            putchar('\n');
            text++;
            len--;
            continue;
        }
        n = n < line ? n : line;
        memcpy(piece, text, n);
        piece[n] = '\0';
        say_put(stdout, piece);
        text += n;
        len -= n;
    }
    fflush(stdout);
}

void agent_say_line(struct agent *a, const char *fmt, ...) {
    char text[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (a->o.json) {
        agent_say_event(a, "note", json_pack("{s:o}", "text", agent_say_string(text)));
        return;
    }
    agent_say_wipe(a);
    fputs("* ", stdout);
    say_put(stdout, text);
    putchar('\n');
    fflush(stdout);
}

/* The first lines of a text, each behind `head`, in a colour when stdout is a terminal ("" = none).
 */
static void agent_say_lines(const char *text, const char *head, const char *colour) {
    bool coloured = colour[0] != '\0' && isatty(STDOUT_FILENO) == 1;
    for (size_t i = 0; i < AGENT_SAY_SHOWN && *text != '\0'; i++) {
        char line[200];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof(line), "%s%.*s", head, n < 180 ? (int)n : 180, text);
        fputs(coloured ? colour : "", stdout);
        say_put(stdout, line);
        puts(coloured ? "\033[m" : "");
        text += n + (text[n] == '\n');
    }
    if (*text != '\0')
        puts("    ...");
    fflush(stdout);
}

/* What an edit or a write would change. */
static void agent_say_change(const json_t *arguments) {
    const char *old = json_string_value(json_object_get(arguments, "old"));
    const char *fresh = json_string_value(json_object_get(arguments, "new"));
    const char *content = json_string_value(json_object_get(arguments, "content"));
    if (old != NULL)
        agent_say_lines(old, "    - ", "\033[31m");
    if (fresh != NULL || content != NULL)
        agent_say_lines(fresh != NULL ? fresh : content, "    + ", "\033[32m");
}

void agent_say_call(struct agent *a, const struct model_call *call) {
    json_t *arguments = json_loads(call->arguments, 0, NULL);
    if (a->o.json) {
        agent_say_event(a, "call",
                        json_pack("{s:o, s:o, s:o}", "id", agent_say_string(call->id), "tool",
                                  agent_say_string(call->name), "arguments",
                                  arguments != NULL ? arguments : json_object()));
        return;
    }
    const char *what = json_string_value(json_object_get(arguments, "command"));
    if (what == NULL)
        what = json_string_value(json_object_get(arguments, "path"));
    if (what == NULL)
        what = json_string_value(json_object_get(arguments, "pattern"));
    if (what == NULL)
        what = json_string_value(json_object_get(arguments, "summary"));
    agent_say_line(a, "%s %.300s", call->name, what != NULL ? what : "");
    agent_say_change(arguments);
    json_decref(arguments);
}

void agent_say_result(struct agent *a, const struct model_call *call, const char *text,
                      bool failed) {
    if (a->o.json) {
        agent_say_event(a, "result",
                        json_pack("{s:o, s:o, s:b, s:o}", "id", agent_say_string(call->id), "tool",
                                  agent_say_string(call->name), "failed", (int)failed, "text",
                                  agent_say_string(text)));
        return;
    }
    agent_say_wipe(a);
    agent_say_lines(text, "    ", "");
}

bool agent_say_may(struct agent *a, enum permission_answer answer, const char *what,
                   const struct perm_verdict *verdict) {
    char question[AGENT_SAY_ASKED + 400];
    if (answer == PERMISSION_RUN)
        return true;
    if (answer != PERMISSION_ASK || a->o.json)
        return false;
    snprintf(question, sizeof(question), "The model wants: %s (%.150s). Allow it?", what,
             verdict->why);
    /* Nobody says yes to what cannot be seen whole. */
    if (strlen(what) > AGENT_SAY_ASKED)
        agent_say_line(a, "too long to be shown whole, so denied: %.300s...", what);
    else if (ask_person(question, "yn") == 'y')
        return true;
    (void)permission_exec_refused(&a->project.decide, what, verdict);
    return false;
}

bool agent_say_denied(struct agent *a, struct buf *out, enum permission_answer answer,
                      const struct perm_verdict *v) {
    (void)buf_puts(out, "denied by the rules of this workspace: ", NULL);
    if (v->rule != NULL)
        (void)buf_printf(out, NULL, "%s (%s:%u: %s)", v->why, v->rule->file, v->rule->line,
                         v->rule->text);
    else
        (void)buf_puts(out, v->why, NULL);
    (void)buf_puts(out, ". Do not try it again; find another way or say what is missing.", NULL);
    if (answer == PERMISSION_LOOP)
        agent_end(a, AGENT_DENIED, "the model asked again for what was denied");
    return true;
}

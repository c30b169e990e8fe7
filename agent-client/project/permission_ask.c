#include "permission_ask.h"

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "say.h"

#define PERMISSION_ASK_SHOWN 400   /* bytes of a command in the question */
#define PERMISSION_ASK_PIECE 1200u /* in one line */

/* The verdict for people: each part that is not allowed, with its rule. */
static void permission_ask_explain(const struct perm_verdict *v) {
    for (size_t i = 0; i < v->count; i++) {
        const struct perm_part *part = &v->parts[i];
        if (part->verdict == RULE_ALLOW)
            continue;
        if (part->rule != NULL)
            say_line("%s: %s: %s (%s:%u: %s)", rule_verdict_name(part->verdict), part->text,
                     part->why, part->rule->file, part->rule->line, part->rule->text);
        else
            say_line("%s: %s: %s", rule_verdict_name(part->verdict), part->text, part->why);
    }
    if (v->count == 0)
        say_line("%s: %s", rule_verdict_name(v->verdict), v->why);
}

/* The rule that "always" would store: offered for a single part. */
static const char *permission_ask_rule(const struct perm_verdict *v) {
    const char *always = NULL;
    size_t asks = 0;
    for (size_t i = 0; i < v->count; i++)
        if (v->parts[i].verdict == RULE_ASK)
            always = ++asks == 1 ? v->parts[i].always : NULL;
    return always;
}

/* Stores it and takes it up. What cannot be stored is allowed this once. */
static void permission_ask_store(struct project *p, const char *rule) {
    struct err err = {0};
    if (perm_files_allow(&p->files, rule, &err) < 0 || project_regrant(p, &err) < 0)
        say_line("always: %s", err.text);
}

/* A command that the question cuts: all of it is shown before. What somebody says yes to must not
 * end in something else. */
static void permission_ask_show(const char *line) {
    size_t len = strlen(line);
    if (len <= PERMISSION_ASK_SHOWN)
        return;
    say_line("the whole command, of %zu bytes:", len);
    for (size_t n; len > 0; line += n, len -= n) {
        n = len < PERMISSION_ASK_PIECE ? len : PERMISSION_ASK_PIECE;
        while (n > 1 && n < len && ((unsigned char)line[n] & 0xc0u) == 0x80u)
            n--;
        say_line("%.*s", (int)n, line);
    }
}

/* true: yes. The verdict is gone when *again. */
static bool permission_ask_person(struct project *p, const char *who, const char *line,
                                  const struct perm_verdict *v, bool *again) {
    char question[1200];
    const char *rule = permission_ask_rule(v);
    permission_ask_explain(v);
    permission_ask_show(line);
    int n = snprintf(question, sizeof(question), "%s to run: %.*s%s", who, PERMISSION_ASK_SHOWN,
                     line, strlen(line) > PERMISSION_ASK_SHOWN ? "... (cut; see above)" : "");
    if (rule != NULL && n > 0 && (size_t)n < sizeof(question))
        snprintf(question + n, sizeof(question) - (size_t)n, " (a = always from now on: %.600s)",
                 rule);
    char answer = ask_person(question, rule != NULL ? "yna" : "yn");
    *again = answer == 'a';
    if (*again)
        permission_ask_store(p, rule);
    return answer == 'y' || answer == 'a';
}

/* Is there a part that was denied for want of a rule, so that one would help? */
static bool permission_ask_unruled(const struct perm_verdict *v) {
    for (size_t i = 0; i < v->count; i++)
        if (v->parts[i].verdict == RULE_DENY && v->parts[i].rule == NULL)
            return true;
    return false;
}

enum permission_answer permission_ask_command(struct project *p, const char *who, const char *line,
                                              bool explain, const struct perm_verdict **v) {
    size_t len = strlen(line);
    enum permission_answer answer = permission_exec_command(&p->decide, line, len, v);
    bool again = false;
    if (answer == PERMISSION_ASK) {
        if (!permission_ask_person(p, who, line, *v, &again))
            return permission_exec_refused(&p->decide, line, *v);
        /* The rules were read again; yes is yes, whatever they say of it now but for a deny. */
        answer = again ? permission_exec_command(&p->decide, line, len, v) : PERMISSION_RUN;
        if (answer == PERMISSION_ASK) {
            say_line("it is stored, but does not count here (a --rules file, or an ask of another "
                     "one)");
            answer = PERMISSION_RUN;
        }
    } else if (answer != PERMISSION_RUN && explain) {
        permission_ask_explain(*v);
        if (p->options.headless && permission_ask_unruled(*v))
            say_line(
                "without a terminal nobody is asked; a line \"allow exec COMMAND\" (or \"allow "
                "write PATH\") in ~/.config/pinfold/permissions.rules allows it");
    }
    return answer;
}

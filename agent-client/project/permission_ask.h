/* Whether a command may run in a project: the rules, and where they want it, a person. */
#pragma once

#include "project.h"

/* PERMISSION_RUN, or denied (PERMISSION_DENIED, PERMISSION_LOOP; a no of the person is recorded as
 * a denial, too). `who` begins the question: "You want", "The model wants". Where one rule would
 * cover what is asked for, "always" is offered: the rule is stored outside of the workspace and
 * counts from then on, in this session, too. Says what is denied, and why, when `explain`. *v is
 * valid until the next decision. */
enum permission_answer permission_ask_command(struct project *p, const char *who, const char *line,
                                              bool explain, const struct perm_verdict **v);

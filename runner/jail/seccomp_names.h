/* System calls that are decided by their name alone: lists of names with a blank between two, each
 * ended by NULL. Those whose arguments matter are in seccomp_filter.c. */
#pragma once

extern const char *const seccomp_names_allowed[]; /* in both sets */
extern const char
    *const seccomp_names_default[];              /* in the default set; refused in the strict one */
extern const char *const seccomp_names_denied[]; /* EPERM */

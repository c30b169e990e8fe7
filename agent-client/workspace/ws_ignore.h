/* What of a workspace stays where it is: patterns of .gitignore (gitignore(5)) and, over them, of
 * .pinfoldignore, which has the same form. What they name is neither sent nor brought back; a line
 * "!name" in .pinfoldignore takes it in again. Built in: .git and .pinfold stay, whatever any file
 * says; so does __pycache__, unless a file takes it in: what is in there runs in place of what its
 * name says.
 *
 * The last pattern that matches decides; below a directory that is left out nothing is taken in.
 * Paths are relative to the workspace, without a slash at either end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define WS_IGNORE_RULES_MAX 20000u
#define WS_IGNORE_FILE_MAX ((size_t)1024 * 1024)

struct ws_ignore_rule {
    char *pattern;   /* owned; without "!", and slashes at either end */
    size_t base;     /* length of the directory that its file is in; 0 = the workspace */
    char *directory; /* owned; that directory */
    bool negated;
    bool only_dirs; /* it ended with a slash */
    bool anchored;  /* it has a slash within: matches from its directory, not at any depth */
};

struct ws_ignore {
    struct ws_ignore_rule *rules; /* in order */
    size_t count, alloc;
};

/* Starts with what is built in. */
int ws_ignore_init(struct ws_ignore *g, struct err *err);
void ws_ignore_done(struct ws_ignore *g); /* NULL and zeroed allowed */
/* Adds the lines of a file that lies in `directory` ("" = the workspace). */
int ws_ignore_add(struct ws_ignore *g, const char *directory, const char *text, size_t len,
                  struct err *err);
/* Is this path itself left out? Its parents are not looked at: who walks a tree does not come here
 * below one that is. */
bool ws_ignore_match(const struct ws_ignore *g, const char *path, bool is_dir);
/* For a path that nobody walked to: is it, or any directory above it, left out? */
bool ws_ignore_covers(const struct ws_ignore *g, const char *path, bool is_dir);
/* Would a new text of an ignore file take in what the old one (of no length: there is none) leaves
 * out? That is, lacks it one of its patterns, or has it a new "!name"? What a sandbox or a model
 * may write must not decide what is sent. */
bool ws_ignore_loosens(const char *was, size_t was_len, const char *now, size_t now_len);
bool ws_ignore_is_file(const char *path);
/* "*", "?", "[a-z]", "\x", and "**" as a whole component. */
bool ws_ignore_glob(const char *pattern, const char *path);

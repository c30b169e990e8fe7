/* What the operands of `pinfold cp` mean. Pure text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define CP_PATH_MAX 4096u
#define CP_ID_MAX 64u

struct cp_path {
    bool remote;
    bool std;           /* "-": standard input or output */
    bool into;          /* it ends with '/': a directory, the copy goes into it */
    bool contents;      /* it is "." or ends with "/.": what is in it, not itself */
    char id[CP_ID_MAX]; /* the sandbox */
    char
        path[CP_PATH_MAX]; /* local: as given; remote: absolute, without "." or doubled slashes, and
                              "/" at the end of nothing but "/" itself */
};

/* "ID:/path", "ID:path" (below /workspace), "local", "./a:b", "-". ERR_INVALID for a remote path
 * with
 * "..", and for what is too long. */
int cp_path_parse(const char *text, struct cp_path *out, struct err *err);
/* The last component, "" when there is none ("/", ".", ".."). */
const char *cp_path_base(const struct cp_path *p, char *space, size_t size);
/* Appends a component to a remote path. */
int cp_path_append(struct cp_path *p, const char *name, struct err *err);
/* "/v1/sandboxes/ID/KIND/path?query", with every component percent-encoded. */
int cp_path_url(const struct cp_path *p, const char *kind, const char *query, char *dst,
                size_t size, struct err *err);
/* Appends a path to the URL that is in dst[size], percent-encoded but for its slashes, and then the
 * query as it is. */
int cp_path_encode(char *dst, size_t size, const char *path, const char *query, struct err *err);
/* May a symbolic link at `path` (relative to the top of a tree, checked) have this target? Only
 * when it cannot lead out of the tree, whatever other such links are in it: relative, with ".."
 * only at its beginning and not more often than the link is deep. */
bool cp_path_link_stays(const char *path, const char *target);

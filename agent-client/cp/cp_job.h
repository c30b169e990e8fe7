/* One `pinfold cp`: the connection, Ctrl-C, progress, and the four ways to copy. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "cp_path.h"
#include "err.h"
#include "intr.h"
#include "progress.h"
#include "rest.h"

#define CP_URL_MAX 14000u

struct cp_job {
    bool recursive;
    bool git; /* what is in a .git is written, too */
    struct target target;
    struct rest *rest;
    struct rest_hooks hooks;
    struct intr intr;
    int signal; /* that ended it */
    struct progress progress;
    size_t failed; /* entries that could not be copied and were reported */
};

int cp_job_begin(struct cp_job *j, struct err *err);
void cp_job_done(struct cp_job *j);

/* Is there a directory at the remote path? -1: the server said something else. */
int cp_job_is_directory(struct cp_job *j, const struct cp_path *remote, bool *yes, struct err *err);

/* cp_send.c: a local file (or standard input) to the remote path; on failure *directory tells that
 * a directory is there. */
int cp_send_file(struct cp_job *j, const struct cp_path *local, const struct cp_path *remote,
                 bool *directory, struct err *err);
/* cp_pack.c: what is in the local directory into the remote one, which is made when missing. */
int cp_pack(struct cp_job *j, const char *local, const struct cp_path *remote, struct err *err);
/* cp_fetch.c: the remote file to the local path, whole or not at all, or to standard output. */
int cp_fetch_file(struct cp_job *j, const struct cp_path *remote, const struct cp_path *local,
                  struct err *err);
/* cp_unpack.c: what is in the remote directory into the local one, which is made when missing. */
int cp_unpack(struct cp_job *j, const struct cp_path *remote, const char *local, struct err *err);

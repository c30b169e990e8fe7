#include "leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"
#include "str.h"

#define LEFTOVERS_SOCKETS 64u

/* Each back end's runner has its own record and sockets. */
static const char *leftovers_file(enum backend backend) {
    return backend == BACKEND_DOCKER ? "run/cgroups.docker" : "run/cgroups";
}

const char *leftovers_socket(enum backend backend) {
    return backend == BACKEND_DOCKER ? "docker" : "runner";
}

void leftovers_sockets(enum backend backend) {
    for (unsigned i = 0; i < LEFTOVERS_SOCKETS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "run/%s.%u.sock", leftovers_socket(backend), i);
        (void)unlink(path);
    }
}

/* A recorded line must look like ours, or the record is not. */
static bool leftovers_ours(const char *line) {
    const char *last = strrchr(line, '/');
    return line[0] == '/' && last != NULL && strncmp(last, "/pinfold-", 9) == 0;
}

int leftovers_group(const char *path, uint64_t *patience_ns, struct log *log, struct err *err) {
    struct err why;
    if (cgroup_sweep(path, *patience_ns, &why) == 0) {
        return 0;
    }
    if (why.code != EBUSY) {
        *err = why;
        return -1;
    }
    *patience_ns = 0;
    log_err(log, LOG_WARN, "sweep.failed", &why);
    return 0;
}

static int leftovers_one(enum backend backend, const char *line, uint64_t *patience_ns,
                         struct log *log, struct err *err) {
    if (!leftovers_ours(line)) {
        return err_set(err, ERR_INVALID, 0,
                       "%s lists %.200s, which is no cgroup of ours; remove the "
                       "file if it was damaged",
                       leftovers_file(backend), line);
    }
    if (access(line, F_OK) != 0) {
        return 0;
    }
    struct log_line l;
    log_begin(&l, log, LOG_INFO, "leftover.removed");
    log_str(&l, "cgroup", line);
    log_end(&l);
    return leftovers_group(line, patience_ns, log, err);
}

int leftovers_sweep(enum backend backend, struct log *log, struct err *err) {
    struct buf text;
    struct err why;
    uint64_t patience_ns = CGROUP_SWEEP_NS;
    buf_init(&text, 65536);
    leftovers_sockets(backend);
    int rc = fd_read_file(AT_FDCWD, leftovers_file(backend), &text, &why);
    if (rc != 0 && why.code == ENOENT) {
        rc = 0; /* the first life */
    } else if (rc != 0 && err != NULL) {
        *err = why;
    }
    char *save = NULL;
    for (char *line = rc == 0 && text.len > 0 ? strtok_r(text.data, "\n", &save) : NULL;
         line != NULL && rc == 0; line = strtok_r(NULL, "\n", &save)) {
        rc = leftovers_one(backend, line, &patience_ns, log, err);
    }
    buf_done(&text);
    return rc;
}

int leftovers_record(enum backend backend, char paths[][512], unsigned count, struct err *err) {
    struct buf text;
    buf_init(&text, 65536);
    int rc = 0;
    for (unsigned i = 0; i < count && rc == 0; i++) {
        rc = buf_printf(&text, err, "%s\n", paths[i]);
    }
    if (rc == 0) {
        rc = fd_write_atomic(AT_FDCWD, leftovers_file(backend), text.data, text.len, 0600, err);
    }
    buf_done(&text);
    return rc;
}

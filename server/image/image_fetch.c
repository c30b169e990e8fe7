#include "image_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "image_apart.h"
#include "image_fetch_job.h"

#define IMAGE_FETCH_NOBODY 65534u
#define IMAGE_FETCH_FILES 64u

struct image_fetch_report {
    int32_t failed;
    struct err err;
};

/* It needs the network, names and certificates, and nothing else. */
static int image_fetch_drop(const struct image_fetch_job *j) {
    const struct rlimit size = {j->max, j->max}, files = {IMAGE_FETCH_FILES, IMAGE_FETCH_FILES},
                        none = {0, 0};

    if (chdir("/") < 0 || setrlimit(RLIMIT_FSIZE, &size) < 0 ||
        setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        return -1;
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 ||
         setresgid(IMAGE_FETCH_NOBODY, IMAGE_FETCH_NOBODY, IMAGE_FETCH_NOBODY) < 0 ||
         setresuid(IMAGE_FETCH_NOBODY, IMAGE_FETCH_NOBODY, IMAGE_FETCH_NOBODY) < 0))
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
}

/* The child: never returns. Descriptors: 0 the file, 1 the pipe, 2 stderr. */
static void __attribute__((noreturn)) image_fetch_child(struct image_fetch_job *j, int out) {
    struct image_fetch_report report = {0};
    int file = fcntl(j->fd, F_DUPFD, 10), end = fcntl(out, F_DUPFD, 10);

    if (file < 0 || end < 0 || dup2(file, 0) < 0 || dup2(end, 1) < 0 || close_range(3, ~0u, 0) < 0)
        _exit(2);
    j->fd = 0;
    if (image_fetch_drop(j) < 0)
        _exit(2);
    report.failed = image_fetch_job(j, &report.err) < 0;
    _exit(fd_write_all(1, &report, sizeof(report), NULL) < 0 ? 1 : 0);
}

static int image_fetch_take(int in, struct err *err) {
    struct image_fetch_report report;
    size_t done = 0;

    while (done < sizeof(report)) {
        ssize_t got = read(in, (char *)&report + done, sizeof(report) - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(err, ERR_PROTOCOL, 0, "the process that fetches broke off");
        done += (size_t)got;
    }
    if (!report.failed)
        return 0;
    report.err.text[sizeof(report.err.text) - 1] = '\0';
    for (char *p = report.err.text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return err_set(err, report.err.kind == ERR_SYSTEM ? ERR_SYSTEM : ERR_INVALID, report.err.code,
                   "%s", report.err.text);
}

int image_fetch(const struct image_fetch *f, const char *what, int fd, uint64_t max,
                struct err *err) {
    char url[IMAGE_REGISTRY_URL_MAX];
    struct image_fetch_job job = {.f = *f, .url = url, .fd = fd, .max = max};
    struct err why = {0};
    int ends[2], rc;
    pid_t child;

    snprintf(url, sizeof(url), "%s://%s/v2/%s/%s", f->ref->loopback ? "http" : "https",
             f->ref->host, f->ref->path, what);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot start to fetch");
    child = fork();
    if (child == 0)
        image_fetch_child(&job, ends[1]);
    fd_close(&ends[1]);
    if (child < 0) {
        fd_close(&ends[0]);
        return err_sys(err, "cannot start to fetch");
    }
    rc = image_fetch_take(ends[0], err);
    fd_close(&ends[0]);
    if (image_apart_reap(child, &why) < 0) {
        if (err != NULL)
            *err = why;
        return -1;
    }
    return rc;
}

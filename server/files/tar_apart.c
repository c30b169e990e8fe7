#include "tar_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "rights.h"

#define TAR_APART_FDS 3
/* Of address space, most of which are the program's libraries; of processor time: the largest
 * archive that a sandbox can hold takes a minute. */
#define TAR_APART_MEMORY ((uint64_t)512 * 1024 * 1024)
#define TAR_APART_SECONDS 900u

static void tar_apart_text(char *text, size_t size) {
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

int tar_apart_check(struct tar_apart_report *report, enum tar_apart_what what, struct err *err) {
    bool known = what == TAR_APART_UNPACK ? report->unpacked.code <= TAR_READ_MEMORY
                                          : report->packed.code <= TAR_PACK_MEMORY &&
                                                report->packed.fileop < FILEOP_CODES;
    if (report->magic != TAR_APART_MAGIC || report->what != what || !known)
        return err_set(err, ERR_PROTOCOL, 0, "the report on an archive makes no sense");
    if (what == TAR_APART_UNPACK) {
        tar_apart_text(report->unpacked.entry, sizeof(report->unpacked.entry));
        tar_apart_text(report->unpacked.why, sizeof(report->unpacked.why));
    }
    return 0;
}

/* In the child, without rights. */
static void tar_apart_work(const struct tar_apart_job *job, const int *fds,
                           struct tar_apart_report *report) {
    report->magic = TAR_APART_MAGIC;
    report->what = job->what;
    if (job->what == TAR_APART_UNPACK)
        tar_read_run(fds[0], fds[1], job->max_bytes, job->max_entries, &report->unpacked);
    else
        tar_pack_run(fds[0], fds[1], job->name, &report->packed);
}

static void tar_apart_child(const struct tar_apart_job *job, const int *fds) {
    struct tar_apart_report report = {0};
    /* Before the rights are gone: the default is what ends it when the report cannot be written. */
    if (rights_drop(fds, TAR_APART_FDS, TAR_APART_MEMORY, TAR_APART_SECONDS) < 0)
        _exit(1);
    tar_apart_work(job, fds, &report);
    /* Before the other descriptors are closed, by the end: whoever sees that has the report. */
    _exit(fd_write_all(fds[2], &report, sizeof(report), NULL) < 0 ? 1 : 0);
}

/* In the helper. */
static void tar_apart_refuse(const struct tar_apart_job *job, int to) {
    struct tar_apart_report report = {.magic = TAR_APART_MAGIC, .what = job->what};
    if (job->what == TAR_APART_UNPACK) {
        report.unpacked.code = TAR_READ_MEMORY;
        snprintf(report.unpacked.why, sizeof(report.unpacked.why),
                 "the server can start no process for it");
    } else {
        report.packed.code = TAR_PACK_MEMORY;
    }
    (void)fd_write_all(to, &report, sizeof(report), NULL);
}

static void tar_apart_start(const struct tar_apart_job *job, const int *fds) {
    pid_t pid = fork();
    if (pid == 0)
        tar_apart_child(job, fds);
    if (pid < 0)
        tar_apart_refuse(job, fds[2]);
}

/* What is no matter of rights: it must not outlive the server's memory in a host that runs short,
 * and nobody may look into it. */
static int tar_apart_begin(struct err *err) {
    static const char adj[] = "500";
    /* Names are bytes to us; in the "C" locale libarchive refuses those that are not ASCII. */
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return err_set(err, ERR_SYSTEM, ENOENT, "this system has no locale C.UTF-8");
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)fd_write_all(fd, adj, sizeof(adj) - 1, NULL);
    fd_close(&fd);
    signal(SIGCHLD, SIG_IGN); /* nobody is waited for */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, "giving up rights");
    return 0;
}

int tar_apart_serve(int sock, struct err *err) {
    if (tar_apart_begin(err) < 0)
        return -1;
    for (;;) {
        struct tar_apart_job job;
        int fds[FD_PASS_MAX];
        size_t nfds = 0;
        ssize_t n = fd_recv(sock, &job, sizeof(job), fds, &nfds, NULL, err);
        if (n <= 0)
            return (int)n;
        job.name[sizeof(job.name) - 1] = '\0';
        if (n == (ssize_t)sizeof(job) && nfds == TAR_APART_FDS &&
            (job.what == TAR_APART_UNPACK || job.what == TAR_APART_PACK))
            tar_apart_start(&job, fds);
        for (size_t i = 0; i < nfds; i++)
            fd_close(&fds[i]);
    }
}

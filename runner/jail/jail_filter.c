/* What the system call filter reports: calls of another architecture, and sockets that are bounded.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "jail.h"

/* The process of a thread, 0 when it is gone. */
static pid_t jail_process_of(pid_t thread) {
    char path[64];
    struct buf text;
    long pid = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
    buf_init(&text, 65536);
    if (fd_read_file(AT_FDCWD, path, &text, NULL) == 0 && text.len > 0) {
        const char *line = strstr(text.data, "\nTgid:");
        pid = line != NULL ? strtol(line + 6, NULL, 10) : 0;
    }
    buf_done(&text);
    return (pid_t)pid;
}

/* The execution that a process belongs to: it is the first process, or its control group tells. */
static struct exec *jail_exec_of(const struct jail *j, pid_t pid) {
    char path[64];
    struct buf text;
    struct exec *found = NULL;
    for (struct exec *x = j->execs; x != NULL; x = x->next) {
        if (x->state == EXEC_RUNNING && x->outside_pid == pid) {
            return x;
        }
    }
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    buf_init(&text, 65536);
    if (fd_read_file(AT_FDCWD, path, &text, NULL) == 0 && text.len > 0) {
        for (struct exec *x = j->execs; x != NULL && found == NULL; x = x->next) {
            char end[CGROUP_NAME_MAX + 3];
            (void)snprintf(end, sizeof end, "/%s\n", x->cgroup.name);
            bool in = strstr(text.data, end) != NULL;
            found = in && x->state != EXEC_OVER ? x : NULL;
        }
    }
    buf_done(&text);
    return found;
}

/* A process that made a call of another architecture is stopped in it now. It gets a SIGSYS, as
 * from the kernel's own kill, except that now it is known who was caught and for which call. While
 * the answer is open the process cannot end, so its numbers are its own. */
static void jail_answer_filtered(struct jail *j, const struct seccomp_notif *note) {
    struct seccomp_notif_resp answer = {.id = note->id, .error = -ENOSYS};
    pid_t pid = jail_process_of((pid_t)note->pid);
    fd_cleanup int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd < 0 || ioctl(j->filter_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &note->id) != 0) {
        (void)ioctl(j->filter_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        return;
    }
    struct exec *x = jail_exec_of(j, pid);
    if (x != NULL) {
        exec_filtered(x, pid, note->data.nr, note->data.arch);
    }
    /* The signal first: it ends the process in the call, and the answer finds nobody. Only a
     * process that ignores, blocks or catches SIGSYS gets it. */
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGSYS, NULL, 0);
    (void)ioctl(j->filter_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    j->sockets.answers++; /* of processes that are no execution's nothing else bounds them */
    j->host->sockets.answers++;
}

void jail_filtered(void *arg, uint32_t events) {
    struct jail *j = arg;
    struct seccomp_notif note;
    int rc = 0;
    memset(&note, 0, sizeof note); /* the kernel insists */
    if (!(events & EPOLLIN)) {
        loop_del(j->host->loop, &j->filter_src); /* its last process is gone */
        loop_timer_stop(j->host->loop, &j->sockets_timer);
    } else if (jail_sockets_wait(j) ||
               (rc = ioctl(j->filter_fd, SECCOMP_IOCTL_NOTIF_RECV, &note)) != 0) {
        if (rc != 0 && errno != ENOENT) { /* whoever asked was interrupted */
            jail_fail(j, "filter", errno, "the filter's listener does not answer");
        }
    } else if (jail_sockets_asked(&note)) {
        jail_sockets_answer(j, &note);
    } else {
        jail_answer_filtered(j, &note);
    }
}

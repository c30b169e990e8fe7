#include "layers_zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "layers_work.h"
#include "mnt.h"

/* What the parent hears once, before anything is asked for. */
struct layers_zygote_hello {
    int failed;
    struct err err;
};

/* File systems of layers are mounted below a tmpfs that is stacked on the root: no path leads to
 * it, so that nothing of the host's is covered and nothing is looked up by a name. */
static int layers_zygote_store(struct layers_home *home, struct err *err) {
    static const struct mnt_option options[] = {{"source", "pinfold"},
                                                {"mode", "0700"},
                                                {"size", "1m"},
                                                {"nr_inodes", "64k"},
                                                {NULL, NULL}};
    struct mnt_fs fs = {-1, -1};
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return err_sys(err, "make a mount namespace for layers");
    }
    fd_cleanup int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    home->store_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (root < 0 || home->store_ns < 0) {
        return err_sys(err, "open / and the mount namespace for layers");
    }
    uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (mnt_fs_new("tmpfs", options, attrs, &fs, err) != 0) {
        return -1;
    }
    int rc = mnt_attach(fs.mount, root, err);
    home->store = fd_steal(&fs.mount);
    mnt_fs_done(&fs);
    return rc;
}

static pid_t layers_zygote_clone(int *pidfd) {
    struct clone_args args = {
        .flags = CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void layers_zygote_serve(const struct layers_home *home, int sock, int job) {
    fd_cleanup int pidfd = -1;
    pid_t pid = layers_zygote_clone(&pidfd);
    if (pid == 0) {
        struct layers_home mine = *home;
        mine.sock = job;
        (void)close(sock);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)signal(SIGCHLD, SIG_DFL);
        layers_work_run(&mine);
    }
    if (pid > 0) {
        const struct layers_birth birth = {.type = LAYERS_BIRTH, .pid = pid};
        (void)fd_send(job, &birth, sizeof birth, &pidfd, 1, NULL);
    }
    /* Without a worker the shard meets the end of the socket, and knows. */
}

static void layers_zygote_main(int sock) {
    struct layers_home home = {.sock = -1, .store = -1, .store_ns = -1};
    struct layers_zygote_hello hello = {0};
    char byte;
    /* The only descriptor to keep becomes number 3, and 0 to 2 stay what they are. */
    if (sock != 3 && dup3(sock, 3, O_CLOEXEC) != 3) {
        _exit(1);
    }
    (void)close_range(4, ~0U, 0);
    (void)umask(0);
    (void)signal(SIGCHLD, SIG_IGN); /* workers are reaped by the kernel */
    (void)prctl(PR_SET_NAME, "pinfold-layers", 0, 0, 0);
    hello.failed = layers_zygote_store(&home, &hello.err);
    if (fd_send(3, &hello, sizeof hello, NULL, 0, NULL) != 0 || hello.failed != 0) {
        _exit(1);
    }
    for (;;) {
        int fds[FD_PASS_MAX];
        size_t nfds = 0;
        ssize_t n = fd_recv(3, &byte, sizeof byte, fds, &nfds, NULL, NULL);
        if (n <= 0 && nfds == 0) {
            _exit(0); /* the shard is gone */
        }
        for (size_t i = 0; i < nfds; i++) {
            layers_zygote_serve(&home, 3, fds[i]);
            fd_close(&fds[i]);
        }
    }
}

int layers_zygote_start(struct layers_zygote *z, struct err *err) {
    struct layers_zygote_hello hello;
    int pair[2];
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    pid_t parent = getpid();
    *z = (struct layers_zygote){.pid = 0, .sock = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "make a socket pair for layers");
    }
    fd_cleanup int ours = pair[0];
    fd_cleanup int theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0) {
        return err_sys(err, "fork the process for layers");
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() == parent) {
            layers_zygote_main(theirs);
        }
        _exit(1);
    }
    fd_close(&theirs);
    z->pid = pid;
    z->sock = fd_steal(&ours);
    ssize_t n = fd_recv(z->sock, &hello, sizeof hello, fds, &nfds, NULL, err);
    if (n == (ssize_t)sizeof hello && nfds == 0 && hello.failed == 0) {
        /* Whoever has a loop must not wait until workers were forked. */
        if (fcntl(z->sock, F_SETFL, O_NONBLOCK) == 0) {
            return 0;
        }
        (void)err_sys(err, "prepare the socket of the process for layers");
    } else if (n == (ssize_t)sizeof hello && nfds == 0 && err != NULL) {
        *err = hello.err;
    } else if (n >= 0) {
        (void)err_set(err, ERR_PROTOCOL, 0, "the process for layers ended at once");
    }
    layers_zygote_stop(z);
    return -1;
}

void layers_zygote_stop(struct layers_zygote *z) {
    fd_close(&z->sock);
    if (z->pid > 0) {
        (void)kill(z->pid, SIGKILL);
        while (waitpid(z->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        z->pid = 0;
    }
}

int layers_zygote_fork(const struct layers_zygote *z, int sock, struct err *err) {
    const char byte = 1;
    if (z->pid == 0) {
        return err_set(err, ERR_STATE, 0, "there is no process for layers");
    }
    struct err why = {0};
    if (fd_send(z->sock, &byte, sizeof byte, &sock, 1, &why) == 0) {
        return 0;
    }
    if (why.code == EAGAIN) {
        return 1;
    }
    if (err != NULL) {
        *err = why;
    }
    return -1;
}

/* Tries at start what will be needed later, with the same code, in two small jails: the second one
 * starts from a snapshot of the first, and must see its file as its own. */
#include "layers_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"

#define LAYERS_PROBE_BASE 0x0ffd0000u /* outside ids below those of jails: pool.h */
#define LAYERS_PROBE_COUNT 65536u
#define LAYERS_PROBE_BYTES (1ull << 20)
#define LAYERS_PROBE_INODES 1000u
#define LAYERS_PROBE_FILE "/workspace/probe"

struct layers_probe {
    pid_t pid;
    int sock, writable, mnt, user;
    int own; /* root of its file system in a file; -1 = it has none */
    uint32_t base;
};

/* ---- a jail of two mounts ---- */

static int layers_probe_root(void) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/proc", "tmpfs", 0, "size=64k,mode=0755") != 0 || chdir("/proc") != 0 ||
        mkdir("workspace", 0755) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 ||
        umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) {
        return -1;
    }
    return mount("tmpfs", "/workspace", "tmpfs", MS_NOSUID | MS_NODEV,
                 "mode=0755,size=1m,nr_inodes=1000");
}

static void layers_probe_main(int sock) {
    char byte;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || read(sock, &byte, 1) != 1 ||
        setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 || layers_probe_root() != 0) {
        _exit(1);
    }
    int fd = open("/workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mkdir("/workspace/workspace", 0755) != 0 ||
        chown("/workspace/workspace", 1000, 1000) != 0 ||
        mount("/workspace/workspace", "/workspace", NULL, MS_BIND, NULL) != 0 ||
        fd_send(sock, "", 1, &fd, 1, NULL) != 0) {
        _exit(1);
    }
    /* On its word, when what is at /workspace then is what will be kept. */
    if (read(sock, &byte, 1) != 1 || mknod(LAYERS_PROBE_FILE, S_IFREG | 0600, 0) != 0 ||
        chown(LAYERS_PROBE_FILE, 1000, 1000) != 0 || write(sock, "", 1) != 1) {
        _exit(1);
    }
    _exit(read(sock, &byte, 1) < 0); /* until we are ended */
}

static int layers_probe_path(const struct layers_work *w, pid_t pid, const char *name) {
    char path[64];
    (void)snprintf(path, sizeof path, "%d/%s", (int)pid, name);
    return openat(w->proc, path, O_RDONLY | O_CLOEXEC);
}

static int layers_probe_map(const struct layers_work *w, const struct layers_probe *p,
                            const char *name, struct err *err) {
    char path[64];
    char text[64];
    (void)snprintf(path, sizeof path, "%d/%s", (int)p->pid, name);
    int n = snprintf(text, sizeof text, "0 %u %u\n", p->base, LAYERS_PROBE_COUNT);
    return fd_write_kernel(w->proc, path, text, (size_t)n, err);
}

static int layers_probe_jail(const struct layers_work *w, struct layers_probe *p, struct err *err) {
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS, .exit_signal = SIGCHLD};
    int pair[2];
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    char byte = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "make a socket pair");
    }
    fd_cleanup int ours = pair[0];
    fd_cleanup int theirs = pair[1];
    p->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (p->pid < 0) {
        return err_sys(err, "make a user namespace");
    }
    if (p->pid == 0) {
        (void)close(pair[0]);
        layers_probe_main(pair[1]);
    }
    fd_close(&theirs);
    if (layers_probe_map(w, p, "gid_map", err) != 0 ||
        layers_probe_map(w, p, "uid_map", err) != 0 || fd_send(ours, &byte, 1, NULL, 0, err) != 0) {
        return -1;
    }
    if (fd_recv(ours, &byte, 1, fds, &nfds, NULL, NULL) != 1 || nfds != 1) {
        return err_set(err, ERR_STATE, EIO, "a tmpfs in a user namespace could not be made");
    }
    p->writable = fds[0];
    p->mnt = layers_probe_path(w, p->pid, "ns/mnt");
    p->user = layers_probe_path(w, p->pid, "ns/user");
    if (p->mnt < 0 || p->user < 0) {
        return err_sys(err, "open the namespaces of the probe");
    }
    p->sock = fd_steal(&ours);
    return 0;
}

static int layers_probe_write(const struct layers_probe *p, struct err *err) {
    char byte = 1;
    if (write(p->sock, &byte, 1) != 1 || read(p->sock, &byte, 1) != 1) {
        return err_set(err, ERR_STATE, EIO, "a file could not be made in it");
    }
    return 0;
}

static void layers_probe_end(struct layers_probe *p) {
    if (p->pid > 0) {
        (void)kill(p->pid, SIGKILL);
        (void)waitpid(p->pid, NULL, 0);
    }
    fd_close(&p->sock);
    fd_close(&p->own);
}

/* ---- work as the shard would hand it out ---- */

static void layers_probe_fill(struct layers_request *req, const struct layers_probe *p,
                              enum layers_op op) {
    *req = (struct layers_request){
        .op = op,
        .flags = p->own < 0 ? LAYERS_ADOPT : 0,
        .in_file = p->own >= 0,
        .pid = p->pid,
        .writable = WIRE_WRITABLE_WORKSPACE,
        .id_base = p->base,
        .disk_bytes = LAYERS_PROBE_BYTES,
        .inodes = LAYERS_PROBE_INODES,
        .live_next = 1,
        .layer = 2,
        .fds = LAYERS_FD_FS + 1,
        .fs_count = 1,
        .fs = {{.id = UINT64_MAX - p->base, .mapped = p->own >= 0}},
    };
}

/* To where workers are: only there can something be mounted that stays. But with the root as it is
 * here, since it is covered there. */
static int layers_probe_come_back(const struct layers_home *home) {
    fd_cleanup int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root >= 0 && setns(home->store_ns, CLONE_NEWNS) == 0 && fchdir(root) == 0 ? chroot(".")
                                                                                     : -1;
}

/* -> the root of the own file system */
static int layers_probe_work(const struct layers_work *w, const struct layers_probe *p,
                             const struct layers_request *req, int other, struct err *err) {
    struct layers_reply reply = {0};
    int pair[2];
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "make a socket pair");
    }
    fd_cleanup int ours = pair[0];
    fd_cleanup int theirs = pair[1];
    const int send[LAYERS_FD_FS + 2] = {
        p->mnt, p->user, p->writable, w->fd[LAYERS_FD_DISK], p->own < 0 ? ours : p->own, other};
    if (fd_send(ours, req, sizeof *req, send, req->fds, err) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        struct layers_home home = *w->home;
        home.sock = theirs;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (layers_probe_come_back(&home) != 0) {
            _exit(1);
        }
        layers_work_run(&home);
    }
    fd_close(&theirs);
    ssize_t n = pid < 0 ? -1 : fd_recv(ours, &reply, sizeof reply, fds, &nfds, NULL, NULL);
    (void)waitpid(pid, NULL, 0);
    if (n != (ssize_t)sizeof reply) {
        return err_set(err, ERR_STATE, EIO, "the process that tried it died");
    }
    reply.text[sizeof reply.text - 1] = '\0';
    for (size_t i = reply.code == 0 ? 1 : 0; i < nfds; i++) {
        fd_close(&fds[i]);
    }
    if (reply.code != 0) {
        return err_set(err, ERR_STATE, reply.code, "%.300s", reply.text);
    }
    /* What is known already is not sent again. */
    return nfds > 0 ? fds[0] : fcntl(p->own, F_DUPFD_CLOEXEC, 0);
}

static int layers_probe_see(const struct layers_probe *p, struct err *err) {
    struct stat st;
    if (setns(p->mnt, CLONE_NEWNS) != 0 || stat(LAYERS_PROBE_FILE, &st) != 0) {
        return err_sys(err, "look at a file of a snapshot");
    }
    return st.st_uid == p->base + 1000
               ? 0
               : err_set(err, ERR_STATE, EIO, "a file of a snapshot has the owner %u", st.st_uid);
}

/* No user namespace is made by a process whose root is not the uppermost mount of its namespace, as
 * it is here, where file systems of layers lie over it: in a copy they are taken away. */
static int layers_probe_uncover(const struct layers_work *w, struct err *err) {
    if (unshare(CLONE_NEWNS) != 0) {
        return err_sys(err, "make a mount namespace");
    }
    fd_cleanup int ns = openat(w->proc_self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNS) != 0 || umount2("/", MNT_DETACH) != 0 ||
        setns(ns, CLONE_NEWNS) != 0) {
        return err_sys(err, "come back to the root");
    }
    return 0;
}

static int layers_probe_in_file(const struct layers_work *w, struct layers_probe *p,
                                struct err *err) {
    struct layers_request req;
    layers_probe_fill(&req, p, LAYERS_OP_PREPARE);
    req.flags = LAYERS_FORMAT;
    p->own = layers_probe_work(w, p, &req, -1, err);
    return p->own < 0 ? err_wrap(err, "a file system in a file") : 0;
}

static int layers_probe_try(const struct layers_work *w, struct layers_probe p[2],
                            struct err *err) {
    struct layers_request req;
    uint32_t format = w->req.flags & LAYERS_FORMAT;
    if (layers_probe_uncover(w, err) != 0 || layers_probe_jail(w, &p[0], err) != 0 ||
        layers_probe_jail(w, &p[1], err) != 0 ||
        (format != 0 && layers_probe_in_file(w, &p[0], err) != 0) ||
        layers_probe_write(&p[0], err) != 0) {
        return -1;
    }
    layers_probe_fill(&req, &p[0], LAYERS_OP_SNAPSHOT);
    req.flags |= LAYERS_QUIET;
    fd_cleanup int first = layers_probe_work(w, &p[0], &req, -1, err);
    if (first < 0) {
        return err_wrap(err, "a snapshot");
    }
    layers_probe_fill(&req, &p[1], LAYERS_OP_PREPARE);
    req.flags = format | LAYERS_FROM | (format != 0 ? 0 : LAYERS_ADOPT);
    req.fds++;
    req.fs_count++;
    req.fs[1] = (struct layers_request_fs){.id = UINT64_MAX - p[0].base, .mapped = 1};
    req.depth = 1;
    req.stack[0] = (struct layers_request_layer){.fs = 1, .number = 2};
    fd_cleanup int second = layers_probe_work(w, &p[1], &req, first, err);
    if (second < 0) {
        return err_wrap(err, "a copy of a snapshot");
    }
    return layers_probe_see(&p[1], err);
}

/* What was mounted for the probe, in the namespace that stays. */
static void layers_probe_forget(const struct layers_work *w, const struct layers_probe *p) {
    char name[32];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)(UINT64_MAX - p->base));
    if (setns(w->home->store_ns, CLONE_NEWNS) == 0 && fchdir(w->home->store) == 0) {
        (void)umount2(name, MNT_DETACH | UMOUNT_NOFOLLOW);
        (void)unlinkat(w->home->store, name, AT_REMOVEDIR);
    }
}

int layers_probe_snapshots(struct layers_work *w, struct err *err) {
    struct layers_probe p[2] = {
        {.sock = -1, .writable = -1, .mnt = -1, .user = -1, .own = -1, .base = LAYERS_PROBE_BASE},
        {.sock = -1,
         .writable = -1,
         .mnt = -1,
         .user = -1,
         .own = -1,
         .base = LAYERS_PROBE_BASE + LAYERS_PROBE_COUNT},
    };
    int rc = layers_probe_try(w, p, err);
    for (int i = 0; i < 2; i++) {
        layers_probe_end(&p[i]);
        layers_probe_forget(w, &p[i]);
    }
    if (rc != 0 && err != NULL) {
        (void)err_wrap(err, w->req.flags & LAYERS_FORMAT
                                ? "snapshots of disk files need overlayfs over id-mapped ext4: use "
                                  "Linux 5.19 or newer"
                                : "snapshots of what is in memory need overlayfs over id-mapped "
                                  "tmpfs: use Linux 6.3 or newer, or a disk file");
    }
    return rc;
}

int layers_probe_files(struct layers_work *w, struct err *err) {
    struct layers_probe p = {
        .sock = -1, .writable = -1, .mnt = -1, .user = -1, .own = -1, .base = LAYERS_PROBE_BASE};
    w->req.disk_bytes = LAYERS_PROBE_BYTES;
    w->req.inodes = LAYERS_PROBE_INODES;
    fd_cleanup int tree = layers_disk_make(w, err);
    int rc = tree < 0 || layers_probe_uncover(w, err) != 0 ? -1 : layers_probe_jail(w, &p, err);
    if (rc == 0) {
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)p.user};
        if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) {
            rc = err_sys(err, "map the ids of an ext4");
        }
    }
    layers_probe_end(&p);
    if (rc != 0 && err != NULL) {
        (void)err_wrap(err, "disk files need loop devices, ext4 and the package e2fsprogs");
    }
    return rc;
}

/* A neighbour, and what tries to reach it from another jail. Its names come by the environment;
 * each is one that means the same thing in every jail, unless a namespace keeps them apart. */
#include "attempt.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NEIGHBOUR "neighbour"

static socklen_t neighbour_abstract(struct sockaddr_un *a, const char *name) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    size_t len = strnlen(name, sizeof a->sun_path - 1);
    memcpy(a->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static struct sockaddr_in neighbour_inet(const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((unsigned short)strtol(port, NULL, 10));
    return a;
}

static key_t neighbour_key(const char *mark) {
    return (key_t)strtol(mark, NULL, 10);
}

static volatile sig_atomic_t neighbour_signals;

static void neighbour_signal(int number) {
    (void)number;
    neighbour_signals++;
}

static int neighbour_listen(int family, const void *address, socklen_t len) {
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (bind(fd, address, len) != 0 || listen(fd, 4) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void neighbour_touch(void) {
    int fd = open("/tmp/neighbour", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) {
        (void)!write(fd, "secret", 6);
        flock(fd, LOCK_EX);
    }
    (void)!open("/dev/shm/neighbour", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

int escape_neighbour(const char *mark) {
    struct sockaddr_un a;
    char name[64];
    (void)snprintf(name, sizeof name, "pinfold-%s", mark);
    socklen_t len = neighbour_abstract(&a, name);
    struct sockaddr_in in = neighbour_inet(mark);
    for (int i = 1; i < 32; i++) {
        signal(i, neighbour_signal);
    }
    neighbour_touch();
    int local = neighbour_listen(AF_UNIX, &a, len);
    int tcp = neighbour_listen(AF_INET, &in, sizeof in);
    int shm = shmget(neighbour_key(mark), 4096, IPC_CREAT | 0666);
    int msg = msgget(neighbour_key(mark), IPC_CREAT | 0666);
    char queue[64];
    (void)snprintf(queue, sizeof queue, "/pinfold-%s", mark);
    mqd_t mq = mq_open(queue, O_RDWR | O_CREAT | O_NONBLOCK, 0666, NULL);
    volatile char *page = shm < 0 ? NULL : shmat(shm, NULL, 0);
    printf("READY local=%d tcp=%d shm=%d msg=%d mq=%d\n", local >= 0, tcp >= 0, shm >= 0, msg >= 0,
           mq >= 0);
    fflush(stdout);
    long touched = 0;
    for (;;) {
        struct pollfd fds[2] = {{.fd = local, .events = POLLIN}, {.fd = tcp, .events = POLLIN}};
        char room[8192];
        poll(fds, 2, 200);
        for (int i = 0; i < 2; i++) {
            touched += fds[i].fd >= 0 && accept(fds[i].fd, NULL, NULL) >= 0;
        }
        touched += page != NULL && page[0] != 0;
        touched += msg >= 0 && msgrcv(msg, room, 64, 0, IPC_NOWAIT) >= 0;
        touched += mq >= 0 && mq_receive(mq, room, sizeof room, NULL) >= 0;
        touched += neighbour_signals;
        printf("TOUCHED %ld\n", touched);
        fflush(stdout);
    }
}

ATTEMPT(NEIGHBOUR, abstract_neighbour, "ECONNREFUSED EPERM EACCES",
        "connecting to the neighbour's abstract socket") {
    struct sockaddr_un a;
    char name[64];
    (void)snprintf(name, sizeof name, "pinfold-%s", escape_name("ESCAPE_NEIGHBOUR"));
    socklen_t len = neighbour_abstract(&a, name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0);
    return TRY(connect(fd, (void *)&a, len));
}

ATTEMPT("abstract sockets", abstract_host, "ECONNREFUSED EPERM EACCES",
        "connecting to the host's abstract socket") {
    struct sockaddr_un a;
    socklen_t len = neighbour_abstract(&a, escape_name("ESCAPE_ABSTRACT"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0);
    return TRY(connect(fd, (void *)&a, len));
}

ATTEMPT("abstract sockets", abstract_datagram, "ECONNREFUSED EPERM EACCES",
        "a datagram to the host's abstract socket") {
    struct sockaddr_un a;
    socklen_t len = neighbour_abstract(&a, escape_name("ESCAPE_ABSTRACT"));
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    NEED(fd >= 0);
    return TRY(sendto(fd, "x", 1, 0, (void *)&a, len));
}

/* X11, D-Bus and systemd listen there on most hosts; a jail that shared the name space would either
 * reach them or be told that the name is taken. */
ATTEMPT("abstract sockets", abstract_bind, "OK",
        "the host's abstract name is free in here, for it is another one") {
    struct sockaddr_un a;
    socklen_t len = neighbour_abstract(&a, escape_name("ESCAPE_ABSTRACT"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0);
    return TRY(bind(fd, (void *)&a, len));
}

ATTEMPT("abstract sockets", abstract_vsock_like, "ECONNREFUSED EPERM EACCES",
        "connecting to the empty abstract name") {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0);
    return TRY(connect(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 1));
}

ATTEMPT(NEIGHBOUR, tcp_neighbour, "ECONNREFUSED EPERM EACCES " FAMILY,
        "connecting to the neighbour's port on 127.0.0.1") {
    struct sockaddr_in a = neighbour_inet(escape_name("ESCAPE_NEIGHBOUR"));
    int fd = (int)TRY(socket(AF_INET, SOCK_STREAM, 0));
    return fd < 0 ? -1 : TRY(connect(fd, (void *)&a, sizeof a));
}

ATTEMPT(NEIGHBOUR, shm_neighbour, "ENOENT EACCES EPERM ENOSYS",
        "opening the neighbour's shared memory by its key") {
    return TRY(shmget(neighbour_key(escape_name("ESCAPE_NEIGHBOUR")), 1, 0));
}

ATTEMPT(NEIGHBOUR, shm_every, "EINVAL EPERM ENOSYS EIDRM",
        "asking for every shared memory segment by number") {
    struct shmid_ds d;
    long best = -1;
    int saved = 0;
    escape_reached("shmctl(0…4095, SHM_STAT)");
    for (int i = 0; i < 4096 && best < 0; i++) {
        best = shmctl(i, 13 /* SHM_STAT */, &d);
        saved = errno;
    }
    errno = saved;
    return best;
}

ATTEMPT(NEIGHBOUR, msg_neighbour, "ENOENT EACCES EPERM ENOSYS",
        "sending to the neighbour's message queue by its key") {
    struct {
        long type;
        char text[8];
    } m = {1, "x"};
    int id = (int)TRY(msgget(neighbour_key(escape_name("ESCAPE_NEIGHBOUR")), 0));
    return id < 0 ? -1 : TRY(msgsnd(id, &m, 8, IPC_NOWAIT));
}

ATTEMPT(NEIGHBOUR, sem_neighbour, "ENOENT EACCES EPERM ENOSYS",
        "opening a semaphore of the neighbour by its key") {
    return TRY(semget(neighbour_key(escape_name("ESCAPE_NEIGHBOUR")), 1, 0));
}

ATTEMPT(NEIGHBOUR, mq_neighbour, "ENOENT EACCES EPERM ENOSYS",
        "opening the neighbour's POSIX message queue") {
    char queue[64];
    (void)snprintf(queue, sizeof queue, "/pinfold-%s", escape_name("ESCAPE_NEIGHBOUR"));
    mqd_t mq = (mqd_t)TRY(mq_open(queue, O_RDWR));
    return mq < 0 ? -1 : TRY(mq_send(mq, "x", 1, 0));
}

ATTEMPT(NEIGHBOUR, file_neighbour, "ENOENT EACCES EPERM",
        "opening the neighbour's file in /tmp by its path") {
    return TRY(open("/tmp/neighbour", O_RDWR));
}

ATTEMPT(NEIGHBOUR, shm_file_neighbour, "ENOENT EACCES EPERM",
        "opening the neighbour's file in /dev/shm by its path") {
    return TRY(open("/dev/shm/neighbour", O_RDWR));
}

/* Numbers of processes are another name space: a guess at the neighbour's or the host's is nobody.
 */
static long neighbour_each(long (*one)(int pid)) {
    int me = getpid(), parent = getppid();
    for (int pid = 2; pid < 70000; pid++) {
        if (pid != me && pid != parent && one(pid) >= 0) {
            return 0;
        }
    }
    errno = ESRCH;
    return -1;
}

static long neighbour_stop(int pid) {
    return kill(pid, SIGSTOP);
}

ATTEMPT(NEIGHBOUR, signal_every, "ESRCH EPERM", "stopping every process by number") {
    escape_reached("kill(2…69999, SIGSTOP)");
    return neighbour_each(neighbour_stop);
}

static long neighbour_pidfd(int pid) {
    return syscall(SYS_pidfd_open, pid, 0);
}

ATTEMPT(NEIGHBOUR, pidfd_every, "ESRCH EPERM ENOSYS", "a pidfd of every process by number") {
    escape_reached("pidfd_open(2…69999)");
    return neighbour_each(neighbour_pidfd);
}

static long neighbour_limit(int pid) {
    return syscall(SYS_prlimit64, pid, 7, NULL, (unsigned long[2]){0, 0});
}

ATTEMPT(NEIGHBOUR, limits_every, "ESRCH EPERM", "the limits of every process by number") {
    escape_reached("prlimit64(2…69999)");
    return neighbour_each(neighbour_limit);
}

static long neighbour_group(int pid) {
    return kill(-pid, SIGSTOP);
}

ATTEMPT(NEIGHBOUR, group_every, "ESRCH EPERM", "stopping every process group by number") {
    escape_reached("kill(-2…-69999, SIGSTOP)");
    return neighbour_each(neighbour_group);
}

/* With one user id in two jails a file lease or a signal by F_SETOWN would cross over. */
ATTEMPT(NEIGHBOUR, setown_every, "ESRCH EPERM EINVAL",
        "having the kernel signal other processes for a terminal or pipe of ours") {
    int p[2];
    NEED(pipe(p) == 0);
    escape_reached("fcntl(F_SETOWN, 2…69999)");
    int me = getpid(), parent = getppid();
    for (int pid = 2; pid < 70000; pid++) {
        if (pid != me && pid != parent && fcntl(p[0], F_SETOWN, pid) == 0 &&
            fcntl(p[0], F_GETOWN) == pid) {
            return 0;
        }
    }
    errno = ESRCH;
    return -1;
}

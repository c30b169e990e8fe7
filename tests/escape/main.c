/* escape --list                        what there is, a line each, separated by tabs
 * escape NONCE NAME                    makes one attempt
 * escape neighbour MARK                what a neighbour does
 * escape flip ONE OTHER SECONDS        swaps two names as often as it can
 * escape --user                        fails when it has a user that did not start it
 *
 * An attempt writes "NONCE REACHED NAME call" and "NONCE RESULT NAME outcome count": the outcome is
 * OK, the name of an error, that of the signal that ended it, or UNFIT when it was not made. */
#include "attempt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAIN_SECONDS 8 /* or what ESCAPE_SECONDS says: an emulated processor is slow */

extern const struct attempt *const __start_attempts[];
extern const struct attempt *const __stop_attempts[];

static const char *main_nonce;
static const char *main_name;
static long main_count;

static const struct {
    int number;
    const char *name;
} main_errors[] = {
#define E(name)                                                                                    \
    { name, #name }
    E(EPERM),        E(ENOENT),       E(ESRCH),           E(EINTR),       E(EIO),
    E(ENXIO),        E(E2BIG),        E(ENOEXEC),         E(EBADF),       E(ECHILD),
    E(EAGAIN),       E(ENOMEM),       E(EACCES),          E(EFAULT),      E(EBUSY),
    E(EEXIST),       E(EXDEV),        E(ENODEV),          E(ENOTDIR),     E(EISDIR),
    E(EINVAL),       E(ENFILE),       E(EMFILE),          E(ENOTTY),      E(ETXTBSY),
    E(EFBIG),        E(ENOSPC),       E(EROFS),           E(EMLINK),      E(EPIPE),
    E(ENAMETOOLONG), E(ENOSYS),       E(ELOOP),           E(ENOTEMPTY),   E(EPROTO),
    E(EOVERFLOW),    E(EUSERS),       E(EPROTONOSUPPORT), E(EPROTOTYPE),  E(ESOCKTNOSUPPORT),
    E(EOPNOTSUPP),   E(EAFNOSUPPORT), E(EADDRINUSE),      E(ENETUNREACH), E(EADDRNOTAVAIL),
    E(ENOBUFS),      E(ECONNREFUSED), E(EHOSTUNREACH),    E(ESTALE),      E(EDQUOT),
    E(ETOOMANYREFS), E(EDESTADDRREQ), E(ENODATA),         E(EMSGSIZE),    E(ECONNRESET),
    E(ETIMEDOUT),    E(ENOTCONN),     E(ENOPROTOOPT),     E(EIDRM),       E(ENOTSOCK),
    E(EDEADLK),      E(ENOMSG),       E(ENOLCK),          E(EMEDIUMTYPE), E(ENOPKG),
    E(EINPROGRESS),
#undef E
};

static const char *main_error(int number, char *room, size_t size) {
    for (size_t i = 0; i < sizeof main_errors / sizeof main_errors[0]; i++) {
        if (main_errors[i].number == number) {
            return main_errors[i].name;
        }
    }
    (void)snprintf(room, size, "E%d", number);
    return room;
}

/* One write per line: an attempt may be killed between any two. */
static void main_say(const char *word, const char *text, long count) {
    char line[600];
    int len = snprintf(line, sizeof line, "%s %s %s %.400s", main_nonce, word, main_name, text);
    if (strcmp(word, "RESULT") == 0) {
        len += snprintf(line + len, sizeof line - (size_t)len, " %ld", count);
    }
    line[len] = '\n';
    if (write(1, line, (size_t)len + 1) < 0) {
        _exit(7);
    }
}

void escape_reached(const char *call) {
    main_say("REACHED", call, 0);
}

void escape_unfit(const char *what) {
    char text[400], room[16];
    (void)snprintf(text, sizeof text, "%s: %s", what, main_error(errno, room, sizeof room));
    main_say("UNFIT", text, 0);
    _exit(9);
}

long escape_counted(long count) {
    main_count = count;
    return -1;
}

const char *escape_name(const char *variable) {
    const char *value = getenv(variable);
    errno = 0;
    if (value == NULL) {
        escape_unfit(variable);
    }
    return value;
}

long escape_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    long n = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return n;
}

int escape_child(void) {
    int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    NEED(pid > 0);
    return pid;
}

static int main_list(void) {
    printf("limits\t%ld\t%ld\t%ld\t%ld\t%ld\n", ESCAPE_MEM, ESCAPE_DISK, ESCAPE_INODES, ESCAPE_PIDS,
           ESCAPE_FILES);
    for (const struct attempt *const *a = __start_attempts; a < __stop_attempts; a++) {
        printf("%s\t%s\t%s\t%ld\t%s\n", (*a)->class, (*a)->name, (*a)->right, (*a)->most,
               (*a)->what);
    }
    return 0;
}

static _Noreturn void main_attempt(const struct attempt *a) {
    char room[16];
    const char *seconds = getenv("ESCAPE_SECONDS");
    alarm(seconds ? (unsigned)strtoul(seconds, NULL, 10) : MAIN_SECONDS);
    errno = 0;
    long result = a->run();
    main_say("RESULT", result == -1 ? main_error(errno, room, sizeof room) : "OK", main_count);
    _exit(0);
}

static const struct attempt *main_find(const char *name) {
    for (const struct attempt *const *a = __start_attempts; a < __stop_attempts; a++) {
        if (strcmp((*a)->name, name) == 0) {
            return *a;
        }
    }
    return NULL;
}

/* In a child, so that its death can be told. */
static int main_run(const struct attempt *a) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        main_attempt(a);
    }
    if (pid < 0) {
        return 8;
    }
    while (waitpid(pid, &status, 0) != pid) {
    }
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        const char *name = number == SIGSYS    ? "SIGSYS"
                           : number == SIGKILL ? "SIGKILL"
                           : number == SIGSEGV ? "SIGSEGV"
                           : number == SIGBUS  ? "SIGBUS"
                           : number == SIGALRM ? "SIGALRM"
                           : number == SIGXFSZ ? "SIGXFSZ"
                           : number == SIGILL  ? "SIGILL"
                                               : "SIGNAL";
        main_say("RESULT", name, 0);
    }
    return 0;
}

/* Says how often, so that who raced with it knows that there was a race. */
static int main_flip(const char *one, const char *other, long seconds) {
    struct timespec now, end;
    long flips = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    do {
        for (int i = 0; i < 500; i++) {
            flips += syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 2) == 0;
        }
        printf("FLIPS %ld\n", flips);
        fflush(stdout);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--user") == 0) {
        return geteuid() != getuid() || getegid() != getgid() || geteuid() == 0;
    }
    if (argc == 5 && strcmp(argv[1], "flip") == 0) {
        return main_flip(argv[2], argv[3], strtol(argv[4], NULL, 10));
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        return main_list();
    }
    if (argc == 3 && strcmp(argv[1], "neighbour") == 0) {
        return escape_neighbour(argv[2]);
    }
    if (argc != 3) {
        fputs("escape: --list, neighbour MARK, or NONCE NAME\n", stderr);
        return 2;
    }
    main_nonce = argv[1];
    main_name = argv[2];
    const struct attempt *a = main_find(main_name);
    if (a == NULL) {
        fputs("escape: there is no such attempt\n", stderr);
        return 2;
    }
    return main_run(a);
}

#include "tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"

#define TTY_GUARD_MS 50
#define TTY_GUARD_LOOKS 10

bool tty_size(int fd, unsigned *rows, unsigned *cols) {
    struct winsize w = {0};

    *rows = 24;
    *cols = 80;
    if (!isatty(fd))
        return false;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
        *rows = w.ws_row;
        *cols = w.ws_col;
    }
    return true;
}

/* Are the settings still those that tty_set_raw() made? Whoever took the terminal over may have
 * changed them, and then they are his. */
static bool tty_is_raw(const struct tty *t) {
    struct termios now, raw = t->saved;

    cfmakeraw(&raw);
    return tcgetattr(t->fd, &now) == 0 && now.c_iflag == raw.c_iflag &&
           now.c_oflag == raw.c_oflag && now.c_cflag == raw.c_cflag && now.c_lflag == raw.c_lflag;
}

/* The guard. Signals are blocked, so that what ends us (a closed terminal, a kill of the group)
 * does not end it first, and so that it may set a terminal that is not its own any more. It looks
 * for a while: a shell that takes the terminal back may bring the settings back that it found. */
static void tty_guard(const struct tty *t, int wait_fd) {
    char done;
    ssize_t got;

    prctl(PR_SET_NAME, "pinfold-tty");
    do
        got = read(wait_fd, &done, 1);
    while (got < 0 && errno == EINTR);
    for (int i = 0; got == 0 && i < TTY_GUARD_LOOKS; i++) {
        if (tty_is_raw(t))
            tcsetattr(t->fd, TCSANOW, &t->saved);
        poll(NULL, 0, TTY_GUARD_MS);
    }
    _exit(0);
}

/* Twice forked: nobody has to wait for it. */
static int tty_start_guard(struct tty *t, struct err *err) {
    int ends[2];
    sigset_t all, before;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot make a pipe");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    child = fork();
    if (child == 0) {
        close(ends[1]);
        if (fork() != 0)
            _exit(0);
        /* Our standard streams may be pipes whose readers wait for their end. */
        if (t->fd != STDIN_FILENO)
            close(STDIN_FILENO);
        if (t->fd != STDOUT_FILENO)
            close(STDOUT_FILENO);
        if (t->fd != STDERR_FILENO)
            close(STDERR_FILENO);
        tty_guard(t, ends[0]);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[0]);
    if (child < 0) {
        close(ends[1]);
        return err_sys(err, "cannot start a process");
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    t->guard = ends[1];
    return 0;
}

static int tty_set_raw(struct tty *t) {
    struct termios raw = t->saved;

    cfmakeraw(&raw);
    return tcsetattr(t->fd, TCSANOW, &raw);
}

int tty_begin(struct tty *t, int fd, struct err *err) {
    sigset_t set;

    *t = (struct tty)TTY_NONE;
    t->fd = fd;
    if (tcgetattr(fd, &t->saved) < 0)
        return err_sys(err, "cannot read the settings of the terminal");
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
        (t->changes = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
        return err_sys(err, "cannot watch the terminal");
    if (tty_start_guard(t, err) < 0)
        return -1;
    if (tty_set_raw(t) < 0) {
        err_sys(err, "cannot change the settings of the terminal");
        tty_end(t);
        return -1;
    }
    t->raw = true;
    return 0;
}

bool tty_changed(struct tty *t) {
    struct signalfd_siginfo info;
    bool any = false;

    while (t->changes >= 0 && read(t->changes, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        any = true;
        if (info.ssi_signo == SIGCONT && t->raw)
            (void)tty_set_raw(t);
    }
    return any;
}

void tty_end(struct tty *t) {
    if (t->raw)
        /* Not TCSAFLUSH: what was typed ahead belongs to whoever reads next. */
        tcsetattr(t->fd, TCSADRAIN, &t->saved);
    t->raw = false;
    if (t->guard >= 0 && write(t->guard, "", 1) < 0)
        t->raw = false;
    fd_close(&t->guard);
    fd_close(&t->changes);
}

#include "intr.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fd.h"

static const int intr_signals[] = {SIGINT, SIGTERM, SIGHUP};

#define INTR_COUNT (sizeof(intr_signals) / sizeof(intr_signals[0]))

/* Those that are not ignored. */
static void intr_set(sigset_t *set) {
    sigemptyset(set);
    for (size_t i = 0; i < INTR_COUNT; i++) {
        struct sigaction now;

        if (sigaction(intr_signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(set, intr_signals[i]);
    }
}

int intr_begin(struct intr *i, struct err *err) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;

    intr_set(&set);
    sigaction(SIGPIPE, &ignore, NULL);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, "cannot block signals");
    i->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (i->fd < 0)
        return err_sys(err, "cannot make a signal descriptor");
    return 0;
}

int intr_take(struct intr *i) {
    struct signalfd_siginfo info;

    if (i->fd < 0 || read(i->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    return (int)info.ssi_signo;
}

static void intr_die(int number) {
    _exit(128 + number);
}

void intr_rude(struct intr *i) {
    struct sigaction die = {.sa_handler = intr_die};
    sigset_t set;

    intr_set(&set);
    for (size_t n = 0; n < INTR_COUNT; n++)
        if (sigismember(&set, intr_signals[n]) == 1)
            sigaction(intr_signals[n], &die, NULL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    fd_close(&i->fd);
}

void intr_end(struct intr *i) {
    fd_close(&i->fd);
}

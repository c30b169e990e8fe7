/* The user's terminal: its size, and raw mode that never outlives us.
 *
 * A process that dies of a signal it cannot catch, or of a fault, leaves its terminal as it was: a
 * user without echo and line editing. So entering raw mode starts a guard, a process that does
 * nothing but wait for our end, and then puts the settings back, unless we did, and unless the
 * terminal belongs to others by then (a shell with job control, which has its own care). */
#pragma once

#include <stdbool.h>
#include <termios.h>

#include "err.h"

struct tty {
    int fd; /* borrowed: the terminal that is read; -1 = none */
    bool raw;
    struct termios saved;
    int guard;   /* the guard waits for a byte or the end of this pipe; owned */
    int changes; /* signalfd: SIGWINCH and SIGCONT; owned, non-blocking */
};

#define TTY_NONE                                                                                   \
    { .fd = -1, .guard = -1, .changes = -1 }

/* 24 by 80 where it has no size. False when `fd` is not a terminal. */
bool tty_size(int fd, unsigned *rows, unsigned *cols);

/* Raw mode for `fd`, with its guard. */
int tty_begin(struct tty *t, int fd, struct err *err);
/* The terminal may have another size, or we were stopped and are back (raw mode is then set
 * again). -> true when something happened since the last call. */
bool tty_changed(struct tty *t);
/* Puts everything back. Harmless when there is nothing to do. */
void tty_end(struct tty *t);

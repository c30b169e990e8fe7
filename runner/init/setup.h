/* The ordered list of steps that make a jail from inside, run once by process 1. The order is the
 * security policy; each step that fails ends the jail with the step's name. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "initmsg.h"

struct sock_filter;

struct setup {
    const struct initmsg_setup *wish; /* borrowed */
    const void *bpf;                  /* borrowed; wish->bpf_bytes bytes */
    int writable_fd; /* out: O_PATH descriptor of the writable file system's root */
    int filter_fd;   /* out: where the runner hears of calls that the filter ends a process for */
};

/* Runs the steps before the first fork. Does not return on failure (init_fail()). */
void setup_run(struct setup *s);

/* Gives up the last powers of process 1: joins the cgroup namespace of process `first`, becomes
 * user INITMSG_UID_INIT, empties every capability set. Does not return on failure. `first` 0: in a
 * container, whose cgroup namespace is there already; with one id there is nothing to give up, and
 * that is checked. */
void setup_seal(int first, bool one_id);
/* Process 1 of a container, which was made without any power, makes a user namespace of its own, in
 * which it has the powers that take it another id than the commands', and a clock since boot; the
 * runner fills in both (docker/apart.h). False: it has power already, or the kernel allows none. */
bool setup_apart(void);
/* The steps of process 1 of a container, which begins without any power over the host and as the
 * user of the commands, and checks that it is so. Does not return on failure. */
void setup_contained(struct setup *s);

/* Around every fork after SEAL, and every signal to a command. A child is born with the ids that
 * nobody inside may signal (real and saved 2); process 1 itself, which nobody can end anyway, goes
 * back to an effective id of 2, so that nobody may change how it is scheduled either. Ids that
 * change make the kernel forget the death signal: it is asked for again.
 *
 * Here and below, `one_id`: there is no other user than that of commands, so that ids stay as they
 * are; then a command may signal what waits beside it, and the runner says so
 * ("separate_ids", main/selftest.h). */
void setup_before_fork(bool one_id);
void setup_after_fork(bool one_id);

/* The same for a child that is going to wait: no capability any more, and halfway to the jail's
 * user. Its real and saved ids stay those of process 1, so that a command, which may signal
 * whatever has its own id as real or saved id, can neither see nor kill the process of the next
 * step. 0, or -1 with errno and *stage. */
int setup_halfway_user(bool one_id, const char **stage);

/* The other half, right before the command: the jail's user for good. 0, or -1 with errno. */
int setup_become_user(void);

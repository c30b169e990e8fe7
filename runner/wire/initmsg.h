/* What the runner and process 1 of a jail say to each other, and the runner and the processes that
 * process 1 forks for executions. Both are private SOCK_SEQPACKET pairs; structs are fixed-size.
 *
 * The control socket (process 1, descriptor 3):
 *   runner: SETUP, FORK(0)                init: SETUP_OK with two descriptors: the writable file
 *                                               system's root and the listener of the filter
 *   runner: SEAL, with GO for child 0     init: SEALED, once child 0 has the namespace of its
 *                                               control group; from now on it holds no capability
 *   runner: FORK(n) for a later execution
 *                                         init: EXITED(pid, status) for each child that it forked
 *   runner: SIGNAL(pid, signal): to the process group of such a child; no answer
 * A child's socket (descriptor 3 of the child, closed by exec):
 *                                         child: HELLO; the kernel adds its process id for us
 *   runner: GO, once it sits in its cgroup child: READY; it has no capability any more, and is
 *                                         halfway to the jail's user (setup_halfway_user())
 *   runner: EXEC with descriptors         child, if a terminal was asked for: TERMINAL with a
 *                                         descriptor (O_PATH) of /dev/ptmx
 *   runner: SLAVE with the terminal,      child: STARTED just before exec, then end of file; or
 *           whose master it has opened    REFUSED with what failed. The jail's user from EXEC on,
 *                                         except for file operations, which stay halfway
 *
 * Anything out of order is fatal for the jail: both sides stop at once.
 *
 * Process 1 of a container (INITMSG_CONTAINED) says and hears the same, but for SETUP_OK, with
 * which only the listener comes. Who made the container gave it the user of the commands and no
 * capability; the ids of its own user namespace are given from outside (docker/apart.h). What
 * process 1 of a native jail does with its powers, the runner has done from outside before SETUP.
 */
#pragma once

#include <stdint.h>

#include "limit.h"
#include "wire.h"

#define INITMSG_FD 3
#define INITMSG_FAR_FD 4 /* contained: the runner's end, until its first message has come */
#define INITMSG_CONTAINED "contained" /* argument of process 1 of a container */
#define INITMSG_BPF_MAX 32768u        /* bytes of seccomp program: 4096 instructions */
#define INITMSG_UID_INIT 2u           /* real and saved user and group of process 1 once sealed */
#define INITMSG_UID_USER 1000u        /* user and group of commands */

enum initmsg_type {
    INITMSG_SETUP = 1,
    INITMSG_FORK,
    INITMSG_SEAL,
    INITMSG_GO,
    INITMSG_EXEC,
    INITMSG_SIGNAL,
    INITMSG_SLAVE,

    INITMSG_SETUP_OK = 32,
    INITMSG_SEALED,
    INITMSG_EXITED,
    INITMSG_FAILED,
    INITMSG_HELLO,
    INITMSG_READY,
    INITMSG_STARTED,
    INITMSG_REFUSED,
    INITMSG_TERMINAL,
};

struct initmsg_setup {
    uint32_t type;
    uint32_t writable; /* mask of enum wire_writable */
    uint64_t disk_bytes;
    uint64_t inodes;
    uint64_t open_files; /* hard limits that later executions may lower */
    uint64_t file_bytes;
    uint64_t stack_bytes;
    uint32_t bpf_bytes;  /* the seccomp program follows */
    uint32_t core_bytes; /* RLIMIT_CORE: 0, or 1 where core dumps go to a program (setup.c) */
    uint32_t one_id;     /* 1: there is no other user than INITMSG_UID_USER */
    uint32_t network;    /* 1: that namespace is set up; process 1 has no power over it */
};

struct initmsg_fork {
    uint32_t type;
    uint32_t exec;
    /* one descriptor: the child's socket */
};

/* SEAL: the type alone. GO.first = 1 asks for a cgroup namespace of its own (only the child that is
 * forked before SEAL can make one). SLAVE.first is 0, or the errno because of which there is none.
 */
struct initmsg_word {
    uint32_t type;
    uint32_t first;
};

struct initmsg_signal {
    uint32_t type;
    uint32_t pid; /* inside */
    uint32_t signal;
    uint32_t reserved;
};

/* Built-in commands that prove at start that a limit or layer works; see init/probe.h. */
enum initmsg_probe {
    INITMSG_PROBE_NONE = 0,
    INITMSG_PROBE_SPIN,     /* burn CPU in two processes until killed */
    INITMSG_PROBE_SLEEP,    /* sleep until killed */
    INITMSG_PROBE_MEMORY,   /* touch memory until killed */
    INITMSG_PROBE_PIDS,     /* fork until EAGAIN: exit 0 */
    INITMSG_PROBE_DISK,     /* write until ENOSPC: exit 0 */
    INITMSG_PROBE_INODES,   /* create files until ENOSPC: exit 0 */
    INITMSG_PROBE_FILES,    /* open until EMFILE, write a file until EFBIG, no core dumps: exit 0 */
    INITMSG_PROBE_SECCOMP,  /* refused calls are refused as they should: exit 0 */
    INITMSG_PROBE_ARCH,     /* a foreign system call: must be killed by SIGSYS */
    INITMSG_PROBE_IDENTITY, /* no capability, no_new_privs, uid 1000, own namespaces: exit 0 */
    INITMSG_PROBE_NETWORK,  /* only lo, up in both families, no way out: exit 0 */
    INITMSG_PROBE_ROOT,     /* the root is read-only, nothing of the host's beyond it: exit 0 */
    INITMSG_PROBE_APART,    /* process 1 has ids that commands lack: exit 0 */
    INITMSG_PROBE_COUNT
};

struct initmsg_exec {
    uint32_t type;
    uint32_t kind;  /* enum wire_exec_kind */
    uint32_t fds;   /* mask of enum wire_exec_fd without KEEP, in the order attached */
    uint32_t flags; /* WIRE_EXEC_SHELL, WIRE_EXEC_PTY */
    uint32_t probe; /* enum initmsg_probe; only the runner itself sets it */
    uint32_t collect_files;
    uint64_t collect_bytes;
    uint64_t open_files;
    uint64_t file_bytes;
    uint64_t stack_bytes;
    uint32_t spec_size;
    uint32_t upper; /* 1: the live upper directory is attached, last */
    uint16_t rows, cols;
    uint32_t reserved;
    /* then the spec, unless WIRE_FD_SPEC */
};

struct initmsg_report {
    uint32_t type;
    int32_t code;     /* FAILED, REFUSED: errno */
    uint32_t pid;     /* HELLO, EXITED: process id inside the jail */
    int32_t status;   /* EXITED: wait status */
    uint64_t mono_ns; /* EXITED, STARTED: CLOCK_MONOTONIC */
    uint64_t cpu_ns;  /* STARTED: CPU that the child used before exec, not the command's */
    char stage[WIRE_NAME_MAX];
    char path[WIRE_TEXT_MAX]; /* REFUSED: what could not be opened */
};

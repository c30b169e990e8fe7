/* The wire between server and runner: one SOCK_SEQPACKET socket per runner shard, fixed-size
 * structs in host byte order (both ends are on one machine), descriptors attached.
 *
 * This is also the back-end interface: any program that speaks it is a runner.
 *
 * Trust: the runner believes nothing the server sends. wire_check_request() validates form (type,
 * length, descriptor count, enum ranges, NUL-terminated names, reserved bytes zero); the runner
 * then validates meaning against the policy that it read itself. The server checks replies the same
 * way with wire_check_reply(), since texts in them may come from inside a jail.
 *
 * A conversation:
 *   server: HELLO                          runner: WELCOME, POLICY…, CAPABILITY…, READY
 *   server: OPEN(jail) EXEC(jail, 0)       runner: END(jail, 0)          (a one-step run)
 *   server: EXEC(jail, 1) …                runner: END(jail, 1) …        (more steps)
 *   server: KILL(jail, n, cause)           runner: END(jail, n) with that cause
 *   server: CLOSE(jail)                    runner: CLOSED(jail): everything of it is gone
 * A jail that cannot be made, or that breaks later: FAILED(jail) instead of any further END, then
 * CLOSED(jail).
 * A sandbox is a jail that stays (OPEN with WIRE_OPEN_SANDBOX):
 *   server: OPEN(jail, key)                runner: OPENED(jail)
 *   server: EXEC(jail, n) any number       runner: STARTED(jail, n) with a terminal's master, if it
 *                                                  has one; END(jail, n)
 *   server: SIGNAL(jail, n)                (no answer)
 *   server: FREEZE, SNAPSHOT, RESTORE      runner: DONE(jail, what): one answer each, in order
 *   server: DROP(key)                      (no answer) a snapshot is forgotten
 *   server: CLOSE(jail)                    runner: CLOSED(jail)
 * When the connection ends, its sandboxes are kept for a while, with their executions and the
 * server's ends of their pipes; runs die at once. A new connection finds them in the greeting:
 *   runner: … KEPT(key)…, KEPT_SNAPSHOT(key)…, READY
 *   server: ADOPT(jail, key)               runner: KEPT_EXEC(jail, n) with descriptors, for each
 *                                                  execution that runs or whose END nobody heard;
 *                                                  DONE(jail, ADOPT); the ENDs. If it is gone
 *                                                  meanwhile: DONE with ENOENT, CLOSED
 * Whoever does not know a key adopts and closes it.
 * What goes on now is told when somebody looks, a slice at a time, beside everything else:
 *   server: LOOK                           runner: KIND for each kind of warm jails, SEEN(jail) for
 *                                                  each that this connection opened, LOOKED
 * OPEN and its first EXEC may travel in one datagram, the EXEC behind the OPEN, with its
 * descriptors: two would wake the runner twice. An EXEC that comes while the jail is being made
 * waits for it. END is sent when every process of the step is dead and its cgroup is empty; so a
 * reader of its pipes meets end of file at once. A run has one EXEC in progress at a time, a
 * sandbox up to WELCOME.execs. Numbers of executions are the server's, and never used twice in a
 * jail. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "cause.h"
#include "err.h"
#include "limit.h"

#define WIRE_VERSION 6u
#define WIRE_NAME_MAX 64 /* names of policies and images, NUL included */
#define WIRE_TEXT_MAX 512
#define WIRE_SPEC_INLINE_MAX 16384u      /* larger specs travel as a memfd */
#define WIRE_SPEC_MAX (2u * 1024 * 1024) /* bytes of argv, env and cwd together */
#define WIRE_POLICY_TEXT_MAX 65536u
#define WIRE_COLLECT_BYTES_MAX (1u << 30) /* content of one COLLECT */
#define WIRE_COLLECT_FILES_MAX 65536u
/* ENDs that were sent in the last moments of a connection are told again to the next one: KEPT_EXEC
 * may come for that many beside WELCOME.execs. */
#define WIRE_TOLD_MAX 64u
#define WIRE_POLICIES_MAX 64u     /* POLICY packets after a WELCOME */
#define WIRE_CAPABILITIES_MAX 64u /* CAPABILITY packets after a WELCOME */
#define WIRE_ERRNO_MAX 4095       /* the kernel's own bound */
#define WIRE_PACKET_MAX (sizeof(struct wire_policy) + WIRE_POLICY_TEXT_MAX)

enum wire_type {
    /* server -> runner */
    WIRE_HELLO = 1,
    WIRE_OPEN,
    WIRE_EXEC,
    WIRE_KILL,
    WIRE_CLOSE,
    WIRE_SIGNAL,
    WIRE_FREEZE,
    WIRE_SNAPSHOT,
    WIRE_RESTORE,
    WIRE_DROP,
    WIRE_ADOPT,
    WIRE_LOOK,
    WIRE_WEIGH,
    /* runner -> server */
    WIRE_WELCOME = 64,
    WIRE_POLICY,
    WIRE_CAPABILITY,
    WIRE_READY,
    WIRE_END,
    WIRE_FAILED,
    WIRE_CLOSED,
    WIRE_STATE,
    WIRE_OPENED,
    WIRE_STARTED,
    WIRE_DONE,
    WIRE_KEPT,
    WIRE_KEPT_SNAPSHOT,
    WIRE_KEPT_EXEC,
    WIRE_KIND,
    WIRE_SEEN,
    WIRE_LOOKED,
};

/* Every packet starts with this. */
struct wire_head {
    uint32_t version; /* WIRE_VERSION */
    uint32_t type;    /* enum wire_type */
    uint32_t size;    /* of the whole packet, trailing bytes included */
    uint32_t exec;    /* number of the execution within its jail, else 0 */
    uint64_t jail;    /* chosen by the server, never used twice on one connection; else 0 */
};

struct wire_hello {
    struct wire_head head;
};

/* Make (or take from the warm pool) a jail. */
struct wire_open {
    struct wire_head head;
    char policy[WIRE_NAME_MAX];
    char image[WIRE_NAME_MAX];
    struct limits limits; /* of the run: each within the policy's ceilings */
    uint32_t network;     /* enum wire_network */
    uint32_t flags;       /* mask of enum wire_open_flag */
    uint32_t disk;        /* enum wire_disk */
    uint32_t reserved;
    char key[WIRE_NAME_MAX];  /* SANDBOX: the name that it is kept under; else "" */
    char from[WIRE_NAME_MAX]; /* key of the snapshot that it starts from, or "" */
    /* What the image was when it was asked for; zeros for one that has no digest ("host" of native
     * jails). Refused when the runner has another by this name. */
    uint8_t image_sha256[32];
};

enum wire_open_flag {
    WIRE_OPEN_SANDBOX = 1, /* it stays, and answers OPENED */
    WIRE_OPEN_MODEST = 2,  /* whoever asks has had many: he leaves what is ready to others */
    WIRE_OPEN_LEFT = 4,    /* as if WEIGH with WIRE_SHARES_LEFT followed at once */
    WIRE_OPEN_FLAGS = 7,
};

/* What its writable file system is made of. */
enum wire_disk {
    WIRE_DISK_MEMORY = 0, /* a tmpfs: counts as memory */
    WIRE_DISK_FILE = 1,   /* a file system in a file: only its page cache counts as memory */
    WIRE_DISK_COUNT
};

enum wire_network { WIRE_NETWORK_NONE = 0 };

enum wire_exec_kind {
    WIRE_EXEC_COMMAND = 0, /* run argv of the spec */
    WIRE_EXEC_COLLECT = 1, /* argv are glob patterns; matching files go to STDOUT as a bundle */
    WIRE_EXEC_FILES = 2,   /* argv are a file operation and its arguments: fileop.h */
};

/* Which descriptors are attached, in this order. */
enum wire_exec_fd {
    WIRE_FD_STDIN = 1,   /* absent: /dev/null */
    WIRE_FD_STDOUT = 2,  /* always, except with PTY */
    WIRE_FD_STDERR = 4,  /* absent: the same pipe as stdout (never for COLLECT) */
    WIRE_FD_SPEC = 8,    /* memfd with the spec; absent: the spec follows the struct */
    WIRE_FD_BUNDLE = 16, /* memfd: files to write into /workspace before exec */
    /* The server's own ends, for the runner to keep while there is no server (sandboxes only). */
    WIRE_FD_KEEP_STDIN = 32,
    WIRE_FD_KEEP_STDOUT = 64,
    WIRE_FD_KEEP_STDERR = 128,
    /* A file in memory: what was taken for stdin. Its position, which this description shares with
     * the server's, says what of it went on into the pipe or the terminal. */
    WIRE_FD_KEEP_INPUT = 256,
    WIRE_FD_KEEP = 480,
    WIRE_FD_ALL = 511,
};

enum wire_exec_flag {
    WIRE_EXEC_SHELL = 1, /* argv[0] is a script for bash, or sh where there is no bash */
    WIRE_EXEC_MORE = 2,  /* another EXEC will follow: prepare its process meanwhile */
    WIRE_EXEC_PTY = 4,   /* 0, 1 and 2 are a terminal of the jail's own, which STARTED brings */
    WIRE_EXEC_FLAGS = 7,
};

struct wire_exec {
    struct wire_head head;
    uint32_t kind;
    uint32_t fds;           /* mask of enum wire_exec_fd */
    uint32_t flags;         /* mask of enum wire_exec_flag */
    uint32_t end_on;        /* mask of enum end_on */
    struct limits limits;   /* of this step: each at most the jail's */
    uint64_t collect_bytes; /* COLLECT: bytes of content at most */
    uint32_t collect_files; /* COLLECT: entries at most */
    uint32_t spec_size;     /* bytes of spec, inline or in the memfd */
    uint16_t rows, cols;    /* PTY: size of the terminal, each at least 1; else 0 */
    uint32_t reserved;
    /* then spec_size bytes, unless WIRE_FD_SPEC */
};

struct wire_kill {
    struct wire_head head;
    uint32_t cause; /* CAUSE_CANCELLED, CAUSE_LOST_CLIENT, CAUSE_OUTPUT or CAUSE_INTERRUPTED */
    uint32_t reserved;
};

struct wire_close {
    struct wire_head head;
};

/* To the process group of a command's first process, while the command runs. 0 is no signal: the
 * runner lets go of KEEP_STDIN, so that the command meets the end of its stdin when the server
 * closes its own end. */
struct wire_signal {
    struct wire_head head;
    uint32_t signal; /* 0 … 64 */
    uint32_t reserved;
};

/* Stops every command of a sandbox (they use no CPU), or lets them go on. File operations are not
 * stopped. */
struct wire_freeze {
    struct wire_head head;
    uint32_t frozen; /* 0 or 1 */
    uint32_t reserved;
};

/* SNAPSHOT: keeps what is writable, except /tmp and /dev/shm, as it is now. Also for a run, between
 * its steps.
 * RESTORE: the writable files become those of the snapshot; commands that run are ended first, as
 * cancelled.
 * DROP (jail 0): no new use will be made of it. ADOPT: the kept sandbox is `jail` from now on. */
struct wire_key {
    struct wire_head head;
    char key[WIRE_NAME_MAX];
};

struct wire_welcome {
    struct wire_head head;
    uint32_t shard;
    uint32_t slots;    /* jails of runs at once */
    uint32_t policies; /* how many POLICY packets follow */
    uint32_t capabilities;
    uint32_t execs;     /* executions at once in a sandbox */
    uint32_t keep_ms;   /* how long sandboxes live without a server */
    uint32_t sandboxes; /* at once, beside the jails of runs */
    uint32_t backend;   /* enum backend: what its jails are made of */
    uint32_t disk;      /* enum wire_disk: what sandboxes get that ask for none, and runs whose
                           steps are kept */
    uint32_t reserved;
    /* The image of an engine that stands for "host", for as long as this runner lives; zeros: there
     * is none. Always zeros for native jails, whose "host" is no image. */
    uint8_t host_sha256[32];
};

/* What may be written inside, besides nothing else. */
enum wire_writable {
    WIRE_WRITABLE_WORKSPACE = 1, /* /workspace; always set */
    WIRE_WRITABLE_HOME = 2,      /* /home/user */
    WIRE_WRITABLE_TMP = 4,       /* /tmp */
    WIRE_WRITABLE_VAR_TMP = 8,   /* /var/tmp */
    WIRE_WRITABLE_SHM = 16,      /* /dev/shm */
    WIRE_WRITABLE_ALL = 31,
};

struct wire_policy {
    struct wire_head head;
    char name[WIRE_NAME_MAX];
    uint8_t sha256[32]; /* of the file's bytes */
    struct limits ceiling;
    struct limits preset; /* the defaults */
    uint32_t writable;    /* mask of enum wire_writable */
    uint32_t network;     /* enum wire_network: the widest allowed */
    uint32_t end_on;      /* default mask of enum end_on */
    uint32_t max_steps;
    uint32_t text_size;  /* bytes of the policy file's JSON text that follow */
    uint16_t backends;   /* mask of BACKEND_BIT(): those that are allowed */
    uint16_t backend;    /* enum backend: of those, what a request gets that names none */
    uint32_t unenforced; /* mask of 1 << enum limit_id: limits that this runner cannot keep */
    uint32_t reserved;
};

/* GIVEN_UP: not enforced either, and the operator has said that this may be. */
enum wire_capability_status {
    WIRE_CAP_ENFORCED = 1,
    WIRE_CAP_UNAVAILABLE = 2,
    WIRE_CAP_GIVEN_UP = 3
};

struct wire_capability {
    struct wire_head head;
    uint32_t status;
    uint32_t required; /* 1: without it the runner does not start */
    char name[32];     /* "mem_bytes", "seccomp", "network_none", … */
    char how[128];     /* "cgroup v1 memory.limit_in_bytes and memory.memsw.limit_in_bytes" */
    char proof[192];   /* what was tried at start and what happened */
    char remedy[192];  /* what to do when unavailable, else "" */
};

struct wire_ready {
    struct wire_head head;
};

struct wire_usage {
    uint64_t wall_ns;
    uint64_t cpu_user_ns;
    uint64_t cpu_system_ns;
    uint64_t mem_peak_bytes; /* anonymous, tmpfs and page cache: the cgroup's peak */
    uint64_t throttled_ns;   /* time that the CPU share held it back */
    uint64_t disk_bytes;     /* in use in the writable file system at the end */
    uint64_t inodes;
    uint32_t pids_peak;
    uint32_t oom_kills;
    uint32_t pids_refused; /* forks that met the pids limit */
    uint32_t stragglers_killed;
};

struct wire_end {
    struct wire_head head;
    uint32_t cause;
    int32_t exit_code;     /* -1 = none */
    int32_t signal;        /* 0 = none */
    int32_t code;          /* errno for CAUSE_START and CAUSE_INTERNAL, else 0 */
    uint64_t limit;        /* the limit that ended it, in its own unit; 0 = none did */
    uint64_t observed;     /* what was measured against it */
    uint64_t setup_ns;     /* from the arrival of EXEC (of OPEN for the first) to exec */
    int32_t syscall_nr;    /* CAUSE_SYSCALL: the system call that was refused … */
    uint32_t syscall_arch; /* … and the AUDIT_ARCH_… of its table */
    struct wire_usage usage;
    char stage[WIRE_NAME_MAX]; /* START: "exec", "chdir", "files"; INTERNAL: the step's name */
    char path[WIRE_TEXT_MAX];  /* START: what could not be opened; hostile bytes, NUL-terminated */
};

struct wire_failed {
    struct wire_head head;
    int32_t code; /* errno */
    uint32_t reserved;
    char stage[WIRE_NAME_MAX];
    char text[WIRE_TEXT_MAX];
};

struct wire_closed {
    struct wire_head head;
    uint64_t cpu_ns; /* of executions that ran until then, and had no END */
};

/* Sent when something in it changes; health is "" when all is well. */
struct wire_state {
    struct wire_head head;
    uint32_t warm;   /* jails ready */
    uint32_t in_use; /* slots that are not free */
    uint64_t jails_made;
    uint64_t jails_taken_warm;
    char health[WIRE_TEXT_MAX]; /* a sentence when new jails cannot be made */
};

/* A LOOK that comes before the LOOKED of the one before asks for both at once. */
enum wire_look_what {
    WIRE_LOOK_KINDS = 1,
    WIRE_LOOK_JAILS = 2,
    WIRE_LOOK_ALL = 3,
    WIRE_LOOK_BUSY = 4, /* of the jails only those in which something runs */
    WIRE_LOOKS = 7
};
struct wire_look {
    struct wire_head head;
    uint32_t what; /* mask of enum wire_look_what, not 0 */
    uint32_t reserved;
};

/* How much of the processors is a jail's, beside the others, while there are not enough of them for
 * all. In the unit of cgroup v1's cpu.shares; on v2, cpu.weight is a hundred for WIRE_SHARES. Stays
 * as long as the jail. No answer; a jail that is gone, or about to be, is no mistake. */
#define WIRE_SHARES 1024u /* of a jail that nothing was said about */
/* What the others leave: it gives way to each that wakes (cpu.idle). */
#define WIRE_SHARES_LEFT 1u
#define WIRE_SHARES_MIN 2u
#define WIRE_SHARES_MAX 102400u
struct wire_weigh {
    struct wire_head head;
    uint32_t shares; /* WIRE_SHARES_MIN … WIRE_SHARES_MAX, or WIRE_SHARES_LEFT */
    uint32_t reserved;
};

/* Jails that are ready and wait to be given away. */
struct wire_kind {
    struct wire_head head;
    char policy[WIRE_NAME_MAX];
    char image[WIRE_NAME_MAX];
    uint32_t warm;
    uint32_t reserved;
};

/* What a jail uses at this moment. */
struct wire_seen {
    struct wire_head head;
    uint64_t cpu_ns;    /* of the executions that run, since each began */
    uint64_t mem_bytes; /* of the whole jail, its files in memory included */
    uint32_t running;   /* executions */
    uint32_t reserved;
};

struct wire_looked {
    struct wire_head head;
};

/* A sandbox is ready for its first command. */
struct wire_opened {
    struct wire_head head;
};

/* Carries one descriptor: the master of the execution's terminal. */
struct wire_started {
    struct wire_head head;
};

/* The answer to FREEZE, SNAPSHOT, RESTORE or ADOPT. */
struct wire_done {
    struct wire_head head;
    uint32_t what;   /* enum wire_type of the request */
    int32_t code;    /* 0 = done, else an errno: ENOENT no such snapshot, ENOSPC no room, ENOTSUP
                        this host cannot, EIO anything else; nothing was changed */
    uint32_t frozen; /* FREEZE, ADOPT: the state now */
    uint32_t depth;  /* SNAPSHOT: layers below the live one */
    uint64_t bytes;  /* SNAPSHOT: what the whole snapshot holds … */
    uint64_t files;  /* … and in how many files, directories and links */
    uint64_t added_bytes;     /* SNAPSHOT: what it holds that no earlier one does */
    char key[WIRE_NAME_MAX];  /* of the request, "" for FREEZE */
    char text[WIRE_TEXT_MAX]; /* one sentence when code is not 0 */
};

/* A sandbox (KEPT) or a snapshot (KEPT_SNAPSHOT) that an earlier connection left. */
struct wire_kept {
    struct wire_head head;
    uint64_t bytes, files; /* snapshots */
    char key[WIRE_NAME_MAX];
};

/* An execution of an adopted sandbox. Carries the server's ends that are kept, in the order of the
 * mask's bits; a terminal's master counts as KEEP_STDOUT. */
struct wire_kept_exec {
    struct wire_head head;
    uint32_t fds;   /* mask within WIRE_FD_KEEP */
    uint32_t flags; /* WIRE_EXEC_PTY or 0 */
};

/* Fills a head. `size` covers trailing bytes. */
void wire_head_init(struct wire_head *h, enum wire_type type, size_t size, uint64_t jail,
                    uint32_t exec);

/* Number of descriptors that a mask of enum wire_exec_fd announces. */
size_t wire_fd_count(uint32_t mask);

/* Validates the form of one received packet: `data` is at least 8-aligned. ERR_PROTOCOL says which
 * field is wrong. wire_check_request is for what a server sends, wire_check_reply for what a runner
 * sends. Neither looks into the spec or the policy text, only at their sizes. */
int wire_check_request(const void *data, size_t size, size_t nfds, struct err *err);
int wire_check_reply(const void *data, size_t size, size_t nfds, struct err *err);

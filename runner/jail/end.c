#include "end.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"
#include "str.h"

/* The kernel charges in batches per processor: a group that met its limit may show a little less.
 */
#define END_MEMORY_SLACK (1u << 20)
#define END_BLOCK 4096u

static bool end_touched(uint64_t peak, uint64_t limit) {
    return peak + END_MEMORY_SLACK >= limit;
}

static void end_limit(struct wire_end *end, uint64_t limit, uint64_t observed) {
    end->limit = limit;
    end->observed = observed;
}

static uint64_t end_wall_ms(const struct end_facts *f) {
    uint64_t until = f->exited ? f->exit_ns : f->imposed_ns;
    return f->started && until > f->start_ns ? (until - f->start_ns) / CLOCK_NS_PER_MS : 0;
}

static void end_call(const struct end_facts *f, struct wire_end *end) {
    end->syscall_nr = f->syscall_nr;
    end->syscall_arch = f->syscall_arch;
}

/* A writable file system is full when either of its limits is met: which one is the nearer? In
 * blocks, so that the products fit into 64 bits. */
static void end_disk(const struct end_facts *f, struct wire_end *end) {
    const uint64_t *v = f->limits.v;
    uint64_t inodes = f->inodes * (v[LIMIT_DISK_BYTES] / END_BLOCK);
    uint64_t bytes = f->disk_bytes / END_BLOCK * v[LIMIT_INODES];
    if (inodes > bytes) {
        end_limit(end, v[LIMIT_INODES], f->inodes);
    } else {
        end_limit(end, v[LIMIT_DISK_BYTES], f->disk_bytes);
    }
}

static void end_cap(const struct end_facts *f, struct wire_end *end, enum cause cause) {
    const uint64_t *v = f->limits.v;
    end->cause = cause;
    switch (cause) {
    case CAUSE_WALL_TIME:
        end_limit(end, v[LIMIT_WALL_MS], end_wall_ms(f));
        break;
    case CAUSE_CPU_TIME:
        end_limit(end, v[LIMIT_CPU_MS], f->cpu_ns / CLOCK_NS_PER_MS);
        break;
    case CAUSE_PIDS:
        end_limit(end, v[LIMIT_PIDS], v[LIMIT_PIDS]); /* it was met; more is not possible */
        break;
    case CAUSE_DISK:
        end_disk(f, end);
        break;
    case CAUSE_SYSCALL:
        end_call(f, end);
        break;
    case CAUSE_OUTPUT:
        end_limit(end, v[LIMIT_OUTPUT_BYTES], 0); /* the server counts bytes */
        break;
    default:
        break;
    }
}

static void end_status(const struct end_facts *f, struct wire_end *end) {
    if (WIFEXITED(f->status)) {
        end->exit_code = WEXITSTATUS(f->status);
    } else if (WIFSIGNALED(f->status)) {
        end->signal = WTERMSIG(f->status);
    }
}

static void end_killed(const struct end_facts *f, struct wire_end *end) {
    end->cause = CAUSE_SIGNAL;
    if (end->signal == SIGSYS && f->filtered) {
        end->cause = CAUSE_SYSCALL;
        end_call(f, end);
    } else if (end->signal == SIGKILL && f->oom_kills > 0) {
        bool own = end_touched(f->mem_peak_bytes, f->limits.v[LIMIT_MEM_BYTES]);
        bool jail = end_touched(f->jail_mem_peak_bytes, f->jail_mem_limit);
        end->cause = own || jail ? CAUSE_MEMORY : CAUSE_MEMORY_HOST;
        end_limit(end, jail && !own ? f->jail_mem_limit : f->limits.v[LIMIT_MEM_BYTES],
                  jail && !own ? f->jail_mem_peak_bytes : f->mem_peak_bytes);
    }
}

static void end_imposed(const struct end_facts *f, struct wire_end *end) {
    end_cap(f, end, f->imposed);
    if (f->exited && WIFSIGNALED(f->status)) {
        end->signal = WTERMSIG(f->status);
    }
}

void end_decide(const struct end_facts *f, struct wire_end *end) {
    end->exit_code = -1;
    end->signal = 0;
    end->code = 0;
    end->syscall_nr = 0;
    end->syscall_arch = 0;
    end_limit(end, 0, 0);
    if (f->imposed != CAUSE_NONE && (!f->exited || f->imposed_ns <= f->exit_ns)) {
        end_imposed(f, end);
        return;
    }
    if (f->refused) {
        end->cause = CAUSE_START;
        end->code = f->refused_code;
        (void)str_copy(end->stage, sizeof end->stage, f->refused_stage);
        (void)str_copy(end->path, sizeof end->path, f->refused_path);
        return;
    }
    if (f->started && (f->end_on & END_ON_PIDS) && f->pids_refused > 0) {
        end_cap(f, end, CAUSE_PIDS);
        return;
    }
    if (f->started && (f->end_on & END_ON_DISK) && f->disk_full) {
        end_cap(f, end, CAUSE_DISK);
        return;
    }
    if (f->exited) {
        end_status(f, end);
    }
    if (f->exited && end->signal != 0) {
        end_killed(f, end);
        if (f->started || end->cause != CAUSE_SIGNAL) {
            return;
        }
    }
    if (f->exited && f->started && end->exit_code >= 0) {
        end->cause = CAUSE_EXIT;
        return;
    }
    end->cause = CAUSE_INTERNAL;
    end->code = ECHILD;
    (void)str_copy(end->stage, sizeof end->stage, f->started ? "wait" : "start");
}

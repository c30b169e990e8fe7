/* A library to preload: one allocation of the program fails. The plan, a file named by
 * PINFOLD_NOMEM, is mapped here and by whoever drives this (scarcity.py, which knows the layout).
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOMEM_LOG 262144
#define NOMEM_FRAMES 16

struct nomem_plan {
    _Atomic uint32_t generation; /* counts up with each change */
    uint32_t nth;                /* which allocation fails, counted from 1; 0 = none */
    uint32_t record;             /* write down where each comes from */
    _Atomic uint32_t hit;
    _Atomic uint32_t count; /* since the last change */
    uint64_t origin[NOMEM_LOG];
};

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static struct nomem_plan *nomem_plan;
static _Thread_local int nomem_inside;
static int nomem_trace = -1;

/* What a process starts is another program: it is left alone. With PINFOLD_NOMEM_COMMAND, only a
 * program with this first argument is meant, whoever starts it. */
static void __attribute__((constructor)) nomem_start(int argc, char **argv) {
    const char *path = getenv("PINFOLD_NOMEM");
    const char *command = getenv("PINFOLD_NOMEM_COMMAND");
    void *frames[2];
    if (command != NULL && (argc < 2 || strcmp(argv[1], command) != 0)) {
        return;
    }
    nomem_inside = 1;
    (void)backtrace(frames, 2); /* loads what it needs */
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *at =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, sizeof(struct nomem_plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        (void)close(fd);
    }
    const char *trace = getenv("PINFOLD_NOMEM_TRACE");
    nomem_trace = trace == NULL ? -1 : open(trace, O_WRONLY | O_APPEND | O_CLOEXEC);
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("PINFOLD_NOMEM");
    nomem_inside = 0;
    nomem_plan = at == MAP_FAILED ? NULL : at;
}

static uint64_t nomem_origin(void) {
    void *frames[NOMEM_FRAMES];
    uint64_t hash = 14695981039346656037ULL;
    int n = backtrace(frames, NOMEM_FRAMES);
    for (int i = 2; i < n; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * 1099511628211ULL;
    }
    return hash;
}

/* Where it fails, for people; addr2line knows the rest. */
static void nomem_say(void) {
    void *frames[NOMEM_FRAMES];
    nomem_inside = 1;
    backtrace_symbols_fd(frames, backtrace(frames, NOMEM_FRAMES), nomem_trace);
    nomem_inside = 0;
}

/* -> must this one fail? */
static int nomem_fails(void) {
    struct nomem_plan *plan = nomem_plan;
    if (plan == NULL || nomem_inside || (plan->nth == 0 && plan->record == 0)) {
        return 0;
    }
    uint32_t at = atomic_fetch_add(&plan->count, 1) + 1;
    if (plan->record && at <= NOMEM_LOG) {
        nomem_inside = 1;
        plan->origin[at - 1] = nomem_origin();
        nomem_inside = 0;
    }
    if (at != plan->nth) {
        return 0;
    }
    plan->hit = 1;
    nomem_say();
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return nomem_fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return nomem_fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return nomem_fails() ? NULL : __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    return nomem_fails() ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return nomem_fails() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *at = nomem_fails() ? NULL : __libc_memalign(alignment, size);
    if (at == NULL) {
        return ENOMEM;
    }
    *out = at;
    return 0;
}

#include "sandbox_spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

/* Not at once: those who come in a crowd need the processors. */
#define SANDBOX_SPARE_REFILL_MS 250u
#define SANDBOX_SPARE_PATH_MAX 64
#define SANDBOX_SPARE_FILE "exec.log"

struct sandbox_spare_job {
    struct work_job job;
    struct sandbox_spare *pool;
    uint64_t first;
    size_t wanted, made;
};

static void sandbox_spare_refill(void *arg);

static void sandbox_spare_path(uint64_t number, char path[SANDBOX_SPARE_PATH_MAX]) {
    snprintf(path, SANDBOX_SPARE_PATH_MAX, SANDBOX_SPARE_DIR "/%" PRIu64, number);
}

static int sandbox_spare_make(uint64_t number) {
    char path[SANDBOX_SPARE_PATH_MAX];
    sandbox_spare_path(number, path);
    if (mkdir(path, 0700) < 0)
        return -1;
    fd_cleanup int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = dir < 0
                 ? -1
                 : openat(dir, SANDBOX_SPARE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    fd_close(&fd); /* when it is missing it is made when it is needed */
    return 0;
}

static void sandbox_spare_work(struct work_job *job) {
    struct sandbox_spare_job *j = (struct sandbox_spare_job *)(void *)job;
    while (j->made < j->wanted && sandbox_spare_make(j->first + j->made) == 0)
        j->made++;
}

static void sandbox_spare_made(struct work_job *job) {
    struct sandbox_spare_job *j = (struct sandbox_spare_job *)(void *)job;
    struct sandbox_spare *p = j->pool;
    for (size_t i = 0; i < j->made && p->count < SANDBOX_SPARE_MAX; i++)
        p->numbers[p->count++] = j->first + i;
    p->busy = false;
    free(j);
}

static void sandbox_spare_refill(void *arg) {
    struct sandbox_spare *p = arg;
    struct sandbox_spare_job *j;
    if (p->busy || (j = calloc(1, sizeof(*j))) == NULL)
        return;
    *j = (struct sandbox_spare_job){.job = {.run = sandbox_spare_work, .done = sandbox_spare_made},
                                    .pool = p,
                                    .first = p->next,
                                    .wanted = SANDBOX_SPARE_MAX - p->count};
    p->next += j->wanted;
    p->busy = true;
    work_add(p->work, &j->job);
}

int sandbox_spare_start(struct sandbox_spare *p, struct loop *loop, struct work *work,
                        struct err *err) {
    *p = (struct sandbox_spare){.loop = loop, .work = work, .next = 1};
    if (mkdir(SANDBOX_SPARE_DIR, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "making " SANDBOX_SPARE_DIR);
    DIR *dir = opendir(SANDBOX_SPARE_DIR);
    if (dir == NULL)
        return err_sys(err, "reading " SANDBOX_SPARE_DIR);
    const struct dirent *e;
    while ((e = readdir(dir)) != NULL) {
        uint64_t number = 0;
        if (str_u64(e->d_name, 1, UINT64_MAX / 2, &number, NULL) < 0)
            continue;
        if (number >= p->next)
            p->next = number + 1;
        if (p->count < SANDBOX_SPARE_MAX)
            p->numbers[p->count++] = number;
    }
    closedir(dir);
    sandbox_spare_refill(p);
    return 0;
}

void sandbox_spare_stop(struct sandbox_spare *p) {
    if (p->loop != NULL)
        loop_timer_stop(p->loop, &p->refill);
}

bool sandbox_spare_take(struct sandbox_spare *p, const char *path) {
    char from[SANDBOX_SPARE_PATH_MAX];
    if (p->loop == NULL || p->count == 0)
        return false;
    sandbox_spare_path(p->numbers[--p->count], from);
    loop_timer_at(p->loop, &p->refill, clock_mono_ns() + SANDBOX_SPARE_REFILL_MS * CLOCK_NS_PER_MS,
                  sandbox_spare_refill, p, NULL);
    return rename(from, path) == 0;
}

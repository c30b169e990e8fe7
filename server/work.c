#include "work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fd.h"

#define WORK_THREADS_MAX 16
#define WORK_STACK ((size_t)512 * 1024)
#define WORK_PIECE ((uintptr_t)1024 * 1024)

struct work_list {
    struct work_job *first, *last;
};

struct work {
    struct loop *loop;
    unsigned threads_max, threads, sleeping;
    pthread_t ids[WORK_THREADS_MAX];
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t more;
    struct work_list todo, done;
    bool stop;
    int event; /* eventfd: something is done */
    struct loop_source source;
};

static void work_put(struct work_list *list, struct work_job *job) {
    job->next = NULL;
    if (list->last != NULL)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static struct work_job *work_take(struct work_list *list) {
    struct work_job *job = list->first;
    if (job == NULL)
        return NULL;
    list->first = job->next;
    if (list->first == NULL)
        list->last = NULL;
    return job;
}

static void *work_thread(void *arg) {
    struct work *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct work_job *job = work_take(&w->todo);
        if (job == NULL && w->stop)
            break;
        if (job == NULL) {
            w->sleeping++;
            pthread_cond_wait(&w->more, &w->lock);
            w->sleeping--;
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        bool told = job->done != NULL;
        job->run(job);
        pthread_mutex_lock(&w->lock);
        if (!told)
            continue;
        work_put(&w->done, job);
        uint64_t one = 1;
        while (write(w->event, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void work_reap(struct work *w) {
    for (;;) {
        pthread_mutex_lock(&w->lock);
        struct work_job *job = work_take(&w->done);
        pthread_mutex_unlock(&w->lock);
        if (job == NULL)
            return;
        job->done(job);
    }
}

static void work_event(void *arg, uint32_t events) {
    struct work *w = arg;
    uint64_t count;
    (void)events;
    if (read(w->event, &count, sizeof(count)) < 0)
        return;
    work_reap(w);
}

struct work *work_new(struct loop *loop, unsigned threads, struct err *err) {
    struct work *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "making worker threads: out of memory");
        return NULL;
    }
    w->loop = loop;
    w->threads_max = threads < WORK_THREADS_MAX ? threads : WORK_THREADS_MAX;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    w->source.fd = -1;
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->event < 0) {
        err_sys(err, "making an eventfd");
        work_free(w);
        return NULL;
    }
    if (loop_add(loop, &w->source, w->event, EPOLLIN, work_event, w, err) < 0) {
        work_free(w);
        return NULL;
    }
    return w;
}

void work_free(struct work *w) {
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->threads; i++)
        pthread_join(w->ids[i], NULL);
    w->threads = 0; /* what is added from here on is done at once */
    work_reap(w);
    loop_del(w->loop, &w->source);
    fd_close(&w->event);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Signals are for the loop's thread. */
static void work_spawn(struct work *w) {
    sigset_t all, old;
    pthread_attr_t attr;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WORK_STACK);
    if (pthread_create(&w->ids[w->threads], &attr, work_thread, w) == 0)
        (void)pthread_setname_np(w->ids[w->threads++], "worker");
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void work_add(struct work *w, struct work_job *job) {
    pthread_mutex_lock(&w->lock);
    if (w->sleeping == 0 && w->threads < w->threads_max && !w->stop)
        work_spawn(w);
    bool any = w->threads > 0;
    if (any) {
        work_put(&w->todo, job);
        pthread_cond_signal(&w->more);
    }
    pthread_mutex_unlock(&w->lock);
    if (!any) {
        void (*done)(struct work_job *) = job->done;
        job->run(job);
        if (done != NULL)
            done(job);
    }
}

bool work_has_threads(const struct work *w) {
    return w != NULL && w->threads > 0;
}

/* A block that is not needed any more has room for the job in it. */
struct work_block {
    struct work_job job;
    size_t len;
};

/* In pieces: while an unmapping goes on, the loop's thread cannot map anything. */
static void work_discard_run(struct work_job *job) {
    struct work_block *b = (struct work_block *)(void *)job;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)(b + 1);
    uintptr_t end = ((uintptr_t)b + b->len) / page * page;
    for (uintptr_t at = (begin + page - 1) / page * page; at < end; at += WORK_PIECE)
        (void)madvise((void *)at, end - at < WORK_PIECE ? end - at : WORK_PIECE, MADV_DONTNEED);
    free(b);
}

void work_discard(struct work *w, void *data, size_t len) {
    struct work_block *b = data;
    if (w == NULL || b == NULL || len <= WORK_DISCARD_MIN) {
        free(data);
        return;
    }
    *b = (struct work_block){.job = {.run = work_discard_run}, .len = len};
    work_add(w, &b->job);
}

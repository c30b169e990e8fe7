#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "clock.h"
#include "store_internal.h"

/* Pages of the log from which on it is brought into the database (4 MiB), and after how long in any
 * case. */
#define STORE_CHECKPOINT_PAGES 1024u
#define STORE_CHECKPOINT_MS 5000u
/* A log that writers never leave alone is not begun anew, however often it is brought in. From this
 * many pages on (64 MiB) they are kept out for the moment that the last pages take. */
#define STORE_CHECKPOINT_FORCE 16384u
#define STORE_CHECKPOINT_STACK ((size_t)256 * 1024)

struct store_checkpoint {
    struct store *store;
    struct loop_timer timer; /* the loop's */
    unsigned done;           /* pages of the log that the thread has been told of; the loop's */
    sqlite3 *db;             /* the thread's */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    unsigned pages; /* to be brought in; 0 = nothing to do */
    bool stop;
};

static void store_checkpoint_once(struct store_checkpoint *c, unsigned pages) {
    int log = 0, moved = 0;
    int rc = sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &moved);
    /* What came meanwhile is little; a second time is likely to catch up. */
    if (rc == SQLITE_OK && moved < log)
        rc = sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &moved);
    if (rc == SQLITE_OK && moved < log && pages >= STORE_CHECKPOINT_FORCE)
        (void)sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_RESTART, &log, &moved);
}

static void *store_checkpoint_thread(void *arg) {
    struct store_checkpoint *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (c->pages == 0) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        unsigned pages = c->pages;
        c->pages = 0;
        pthread_mutex_unlock(&c->lock);
        store_checkpoint_once(c, pages);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void store_checkpoint_wake(struct store_checkpoint *c, unsigned pages) {
    c->done = pages;
    pthread_mutex_lock(&c->lock);
    c->pages = pages;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

static void store_checkpoint_due(void *arg) {
    struct store_checkpoint *c = arg;
    store_checkpoint_wake(c, c->done > 0 ? c->done : 1);
}

void store_checkpoint_tell(struct store_checkpoint *c, unsigned pages) {
    /* The log was begun anew. */
    if (pages < c->done)
        c->done = 0;
    if (pages - c->done >= STORE_CHECKPOINT_PAGES)
        store_checkpoint_wake(c, pages);
    if (c->timer.slot == 0)
        loop_timer_at(c->store->loop, &c->timer,
                      clock_mono_ns() + STORE_CHECKPOINT_MS * CLOCK_NS_PER_MS, store_checkpoint_due,
                      c, NULL);
}

static int store_checkpoint_spawn(struct store_checkpoint *c, struct err *err) {
    sigset_t all, old;
    pthread_attr_t attr;
    /* Signals are for the loop's thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STORE_CHECKPOINT_STACK);
    int code = pthread_create(&c->thread, &attr, store_checkpoint_thread, c);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0)
        return err_set(err, ERR_SYSTEM, code, "starting a thread for the database");
    c->running = true;
    return 0;
}

struct store_checkpoint *store_checkpoint_start(struct store *s, struct err *err) {
    struct store_checkpoint *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "opening the database: out of memory");
        return NULL;
    }
    c->store = s;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    static const char pragmas[] = "PRAGMA synchronous=NORMAL;PRAGMA cache_size=-256;";
    if (store_connect(s, &c->db, err) < 0 ||
        sqlite3_exec(c->db, pragmas, NULL, NULL, NULL) != SQLITE_OK ||
        store_checkpoint_spawn(c, err) < 0) {
        store_checkpoint_stop(c);
        return NULL;
    }
    return c;
}

void store_checkpoint_stop(struct store_checkpoint *c) {
    if (c == NULL)
        return;
    loop_timer_stop(c->store->loop, &c->timer);
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (c->running)
        pthread_join(c->thread, NULL);
    sqlite3_close(c->db);
    pthread_cond_destroy(&c->more);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

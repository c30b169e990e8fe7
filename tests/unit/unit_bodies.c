#include "bodies.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results.h"
#include "unit.h"

static const char text[] = "the body of a request";

struct place {
    char path[64], name[STORE_RUNS_FILE_SIZE];
    int dir;
    struct loop *loop;
    struct work *work;
    struct bodies bodies;
    unsigned missing; /* found by a thread */
};

static int set_up(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    struct err err;
    uint8_t hash[STORE_RUNS_HASH_SIZE];
    snprintf(p->path, sizeof(p->path), "/tmp/pinfold-bodies-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->loop = loop_new(&err);
    p->work = work_new(p->loop, 1, &err);
    assert_non_null(p->work);
    results_hash(text, sizeof(text), hash);
    results_name(hash, p->name);
    bodies_init(&p->bodies);
    *state = p;
    return 0;
}

static int tear_down(void **state) {
    struct place *p = *state;
    work_free(p->work);
    loop_free(p->loop);
    bodies_done(&p->bodies);
    unlinkat(p->dir, p->name, 0);
    close(p->dir);
    assert_int_equal(rmdir(p->path), 0); /* nothing else was left */
    free(p);
    return 0;
}

static bool is_there(const struct place *p) {
    return faccessat(p->dir, p->name, F_OK, 0) == 0;
}

static void bring(struct place *p) {
    struct err err;
    unit_works(bodies_hold(&p->bodies, p->name, &err), err);
    unit_works(results_write(p->dir, p->name, text, sizeof(text), &err), err);
}

static void test_a_file_stays_as_long_as_somebody_holds_it(void **state) {
    struct place *p = *state;
    bring(p);
    bring(p);
    bodies_remove(&p->bodies, p->work, p->dir, p->name);
    assert_true(is_there(p));
    assert_false(bodies_let_go(&p->bodies, p->name));
    bodies_remove(&p->bodies, p->work, p->dir, p->name);
    assert_true(is_there(p));
    assert_true(bodies_let_go(&p->bodies, p->name));
    bodies_remove(&p->bodies, p->work, p->dir, p->name);
    assert_false(is_there(p));
    bodies_remove(&p->bodies, p->work, p->dir, p->name); /* there is none */
}

#define ROUNDS 3000

static void *bring_often(void *arg) {
    struct place *p = arg;
    for (int i = 0; i < ROUNDS; i++) {
        bring(p);
        __atomic_fetch_add(&p->missing, !is_there(p), __ATOMIC_RELAXED);
        (void)bodies_let_go(&p->bodies, p->name);
    }
    return NULL;
}

/* A worker brings it while retention takes it away, again and again. */
static void test_what_is_held_is_there_whenever_it_is_removed(void **state) {
    struct place *p = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, bring_often, p), 0);
    for (int i = 0; i < ROUNDS; i++)
        bodies_remove(&p->bodies, p->work, p->dir, p->name);
    pthread_join(thread, NULL);
    assert_int_equal(p->missing, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_file_stays_as_long_as_somebody_holds_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_held_is_there_whenever_it_is_removed, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("bodies", tests, NULL, NULL);
}

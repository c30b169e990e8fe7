#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image_tree.h"
#include "unit.h"

/* A directory of our own for each test. */
struct place {
    char dir[64];
    char path[128];
};

static int place_make(void **state) {
    struct place *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return -1;
    snprintf(p->dir, sizeof(p->dir), "/tmp/unit-state-XXXXXX");
    if (mkdtemp(p->dir) == NULL)
        return -1;
    snprintf(p->path, sizeof(p->path), "%s/state", p->dir);
    *state = p;
    return 0;
}

static int place_remove(void **state) {
    struct place *p = *state;
    int rc = image_tree_remove(AT_FDCWD, p->dir, NULL);

    free(p);
    return rc;
}

static struct state_user self(void) {
    return (struct state_user){.uid = geteuid(), .gid = getegid()};
}

static mode_t mode_of(const struct state *s, const char *name) {
    struct stat st;

    assert_int_equal(fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, geteuid());
    return st.st_mode & 07777;
}

static void check_layout(const struct state *s) {
    assert_int_equal(mode_of(s, "."), 0755);
    assert_int_equal(mode_of(s, STATE_RUN), 0750);
    assert_int_equal(mode_of(s, STATE_IMAGES), 0755);
    assert_int_equal(mode_of(s, STATE_SERVER), 0750);
    assert_int_equal(mode_of(s, STATE_LOG), 0750);
    assert_int_equal(mode_of(s, STATE_LOCK_SERVER), 0600);
    assert_int_equal(mode_of(s, STATE_LOCK_RUNNER), 0600);
}

static void test_make(void **state) {
    struct place *p = *state;
    static const mode_t masks[] = {022, 077, 0, 0777};
    struct state_user user = self();

    for (size_t i = 0; i < UNIT_COUNT(masks); i++) {
        struct err err = {0};
        struct state s = STATE_NONE;
        char path[256];
        bool made = false;
        mode_t before;

        snprintf(path, sizeof(path), "%s/a%zu/b/state//", p->dir, i);
        before = umask(masks[i]);
        /* Without root, a directory that its owner may not enter cannot be filled. */
        if (masks[i] == 0777 && geteuid() != 0)
            umask(077);
        unit_works(state_make(path, &user, &s, &made, &err), err);
        umask(before);
        assert_true(made);
        check_layout(&s);
        state_close(&s);
        unit_works(state_make(path, &user, &s, &made, &err), err);
        assert_false(made);
        state_close(&s);
        state_close(&s);
    }
}

static void test_mend(void **state) {
    struct place *p = *state;
    struct state_user user = self();
    struct err err = {0};
    struct state s = STATE_NONE;
    bool made = false;

    unit_works(state_make(p->path, &user, &s, NULL, &err), err);
    assert_int_equal(fchmodat(s.dir, STATE_RUN, 0777, 0), 0);
    assert_int_equal(fchmodat(s.dir, STATE_LOCK_SERVER, 0666, 0), 0);
    assert_int_equal(unlinkat(s.dir, STATE_LOG, AT_REMOVEDIR), 0);
    state_close(&s);
    unit_works(state_make(p->path, &user, &s, &made, &err), err);
    assert_true(made);
    check_layout(&s);
    state_close(&s);
    state_close(NULL);
}

static void test_refused(void **state) {
    struct place *p = *state;
    struct state_user user = self();
    struct err err = {0};
    struct state s = STATE_NONE;
    char link[160], file[160];

    unit_fails(state_open(p->path, &s, &err), err, ERR_INVALID);
    unit_works(state_make(p->path, &user, &s, NULL, &err), err);
    state_close(&s);
    unit_works(state_open(p->path, &s, &err), err);
    state_close(&s);

    snprintf(link, sizeof(link), "%s/link", p->dir);
    assert_int_equal(symlink("state", link), 0);
    unit_fails(state_open(link, &s, &err), err, ERR_INVALID);
    unit_fails(state_make(link, &user, &s, NULL, &err), err, ERR_INVALID);
    snprintf(link, sizeof(link), "%s/link/", p->dir);
    unit_fails(state_open(link, &s, &err), err, ERR_INVALID);

    assert_int_equal(chmod(p->path, 0775), 0);
    unit_fails(state_open(p->path, &s, &err), err, ERR_INVALID);
    assert_int_equal(chmod(p->path, 0755), 0);

    /* A directory that is something else. */
    snprintf(file, sizeof(file), "%s/work", p->dir);
    assert_int_equal(mkdir(file, 0755), 0);
    snprintf(file, sizeof(file), "%s/work/thesis", p->dir);
    assert_int_equal(mkdir(file, 0755), 0);
    snprintf(file, sizeof(file), "%s/work", p->dir);
    unit_fails(state_make(file, &user, &s, NULL, &err), err, ERR_INVALID);
    unit_fails(state_make("", &user, &s, NULL, &err), err, ERR_INVALID);
    assert_int_equal(s.dir, -1);

    if (geteuid() == 0) {
        assert_int_equal(chown(p->path, 12345, 12345), 0);
        unit_fails(state_open(p->path, &s, &err), err, ERR_INVALID);
        assert_int_equal(chown(p->path, 0, 0), 0);
    }
}

static void test_links_inside(void **state) {
    struct place *p = *state;
    struct state_user user = self();
    struct err err = {0};
    struct state s = STATE_NONE;

    unit_works(state_make(p->path, &user, &s, NULL, &err), err);
    assert_int_equal(unlinkat(s.dir, STATE_RUN, AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("/tmp", s.dir, STATE_RUN), 0);
    assert_int_equal(state_open_dir(&s, STATE_RUN, &err), -1);
    assert_int_equal(state_open_dir(&s, "../", &err), -1);
    state_close(&s);
    unit_fails(state_make(p->path, &user, &s, NULL, &err), err, ERR_INVALID);
}

static void test_lock(void **state) {
    struct place *p = *state;
    struct state_user user = self();
    struct err err = {0};
    struct state s = STATE_NONE;
    char expected[300];
    int lock, again;

    unit_works(state_make(p->path, &user, &s, NULL, &err), err);
    lock = state_lock(&s, STATE_LOCK_SERVER, "pinfold-server", &err);
    assert_true(lock >= 0);
    unit_fails(state_lock(&s, STATE_LOCK_SERVER, "pinfold-server", &err), err, ERR_STATE);
    snprintf(expected, sizeof(expected), "another pinfold-server uses %s (pid %ld)", p->path,
             (long)getpid());
    assert_string_equal(err.text, expected);
    again = state_lock(&s, STATE_LOCK_RUNNER, "pinfold-runner", &err);
    assert_true(again >= 0);
    close(again);
    close(lock);
    again = state_lock(&s, STATE_LOCK_SERVER, "pinfold-server", &err);
    assert_true(again >= 0);
    close(again);
    state_close(&s);
}

static void test_enter(void **state) {
    struct place *p = *state;
    struct state_user user = self();
    struct err err = {0};
    struct state s = STATE_NONE;
    pid_t child;
    int status;

    unit_works(state_make(p->path, &user, &s, NULL, &err), err);
    child = fork();
    if (child == 0)
        _exit(state_enter(&s, NULL) == 0 && access(STATE_LOCK_SERVER, F_OK) == 0 ? 0 : 1);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    state_close(&s);
}

static void test_user(void **state) {
    (void)state;
    struct err err = {0};
    struct state_user user;

    unit_works(state_user_find("root", &user, &err), err);
    assert_int_equal(user.uid, 0);
    unit_fails(state_user_find("no-such-user-here", &user, &err), err, ERR_INVALID);
    assert_non_null(strstr(err.text, "useradd"));
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLACED(test_make),           PLACED(test_mend), PLACED(test_refused),
        PLACED(test_links_inside),   PLACED(test_lock), PLACED(test_enter),
        cmocka_unit_test(test_user),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}

/* The group of jails that get what others leave: when it is idle, and what it weighs else. In
 * directories that look like those of the two kinds of trees. */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "unit.h"
#include "wire.h"

struct place {
    char path[64];
    struct cgroup_host host;
    struct cgroup_jail one, two;
};

static void put(int dir, const char *file) {
    int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
}

/* What was written there, since it was last asked for. */
static void wrote(int dir, const char *file, const char *want) {
    struct buf text;
    buf_init(&text, 256);
    assert_int_equal(fd_read_file(dir, file, &text, NULL), 0);
    assert_string_equal(text.len > 0 ? text.data : "", want);
    buf_done(&text);
    put(dir, file);
}

static int make(int parent, const char *name, bool v2) {
    assert_int_equal(mkdirat(parent, name, 0700), 0);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    put(fd, "cpu.idle");
    put(fd, v2 ? "cpu.weight" : "cpu.shares");
    put(fd, "cgroup.subtree_control");
    return fd;
}

static void begin(struct place *p, bool v2) {
    struct err err = {0};
    memset(p, 0, sizeof *p);
    (void)snprintf(p->path, sizeof p->path, "/tmp/unit-left-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->host.count = 1;
    p->host.tree[0].roles = CGROUP_ROLES;
    p->host.tree[0].v2 = v2;
    p->host.tree[0].base_fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->host.left.dir = -1;
    int left = make(p->host.tree[0].base_fd, "left", v2);
    unit_works(cgroup_left_enter(&p->host, &err), err);
    wrote(left, "cpu.idle", "1");
    wrote(left, "cgroup.subtree_control", v2 ? "+memory +pids +cpu " : "");
    struct cgroup_jail *jails[] = {&p->one, &p->two};
    const char *names[] = {"j1", "j2"};
    for (int i = 0; i < 2; i++) {
        cgroup_jail_init(jails[i]);
        jails[i]->left = jails[i]->idle = true;
        jails[i]->fd[0] = make(left, names[i], v2);
    }
    (void)close(left);
}

static int gone(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void end(struct place *p) {
    cgroup_jail_abandon(&p->one);
    cgroup_jail_abandon(&p->two);
    fd_close(&p->host.left.dir);
    (void)close(p->host.tree[0].base_fd);
    assert_int_equal(nftw(p->path, gone, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void weigh(struct place *p, struct cgroup_jail *jail, uint32_t shares) {
    struct err err = {0};
    unit_works(cgroup_jail_weigh(&p->host, jail, shares, &err), err);
}

static void weighs_what_those_weigh_who_do_not_give_way(bool v2) {
    struct place p;
    const char *file = v2 ? "cpu.weight" : "cpu.shares";
    begin(&p, v2);
    int left = p.host.left.dir;
    weigh(&p, &p.one, WIRE_SHARES_LEFT);
    wrote(left, "cpu.idle", ""); /* it is */
    weigh(&p, &p.one, WIRE_SHARES);
    wrote(left, "cpu.idle", "0");
    wrote(left, file, v2 ? "100" : "1024");
    wrote(p.one.fd[0], "cpu.idle", "0");
    wrote(p.one.fd[0], file, v2 ? "100" : "1024");
    weigh(&p, &p.two, WIRE_SHARES / 4);
    wrote(left, "cpu.idle", "");
    wrote(left, file, v2 ? "125" : "1280");
    weigh(&p, &p.one, WIRE_SHARES_LEFT);
    wrote(p.one.fd[0], "cpu.idle", "1");
    wrote(left, file, v2 ? "25" : "256");
    weigh(&p, &p.two, WIRE_SHARES_LEFT);
    wrote(left, "cpu.idle", "1");
    end(&p);
}

static void test_v1_the_group_weighs_what_those_in_it_weigh_who_do_not_give_way(void **state) {
    (void)state;
    weighs_what_those_weigh_who_do_not_give_way(false);
}

static void test_v2_the_group_weighs_what_those_in_it_weigh_who_do_not_give_way(void **state) {
    (void)state;
    weighs_what_those_weigh_who_do_not_give_way(true);
}

static void test_a_jail_that_is_gone_weighs_nothing(void **state) {
    struct place p;
    struct err err = {0};
    (void)state;
    begin(&p, false);
    weigh(&p, &p.one, WIRE_SHARES);
    wrote(p.host.left.dir, "cpu.idle", "0");
    unit_works(cgroup_left_add(&p.host, &p.one, 0, &err), err);
    wrote(p.host.left.dir, "cpu.idle", "1");
    unit_works(cgroup_left_add(&p.host, &p.one, 0, &err), err);
    wrote(p.host.left.dir, "cpu.idle", "");
    end(&p);
}

static void test_a_jail_elsewhere_does_not_change_it(void **state) {
    struct place p;
    (void)state;
    begin(&p, false);
    p.one.left = false;
    weigh(&p, &p.one, WIRE_SHARES / 2);
    wrote(p.one.fd[0], "cpu.shares", "512");
    wrote(p.host.left.dir, "cpu.idle", "");
    wrote(p.host.left.dir, "cpu.shares", "");
    end(&p);
}

static void test_who_finds_it_removed_makes_it_anew(void **state) {
    struct place p;
    struct err err = {0};
    (void)state;
    begin(&p, false);
    weigh(&p, &p.one, WIRE_SHARES);
    assert_int_equal(renameat(p.host.tree[0].base_fd, "left", p.host.tree[0].base_fd, "gone"), 0);
    assert_int_equal(cgroup_left_enter(&p.host, &err), -1); /* here it has no files */
    assert_int_equal(err.code, ENOENT);
    assert_int_equal(p.host.left.shares, 0);
    (void)close(make(p.host.tree[0].base_fd, "left", false));
    unit_works(cgroup_left_enter(&p.host, &err), err);
    wrote(p.host.left.dir, "cpu.idle", "1");
    end(&p);
}

static void test_without_cpu_idle_there_is_none(void **state) {
    struct place p;
    struct err err = {0};
    (void)state;
    begin(&p, false);
    fd_close(&p.host.left.dir);
    assert_int_equal(unlinkat(p.host.tree[0].base_fd, "left/cpu.idle", 0), 0);
    assert_int_equal(cgroup_left_enter(&p.host, &err), -1);
    assert_int_equal(err.code, ENOENT);
    assert_int_equal(p.host.left.dir, -1);
    end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1_the_group_weighs_what_those_in_it_weigh_who_do_not_give_way),
        cmocka_unit_test(test_v2_the_group_weighs_what_those_in_it_weigh_who_do_not_give_way),
        cmocka_unit_test(test_a_jail_that_is_gone_weighs_nothing),
        cmocka_unit_test(test_a_jail_elsewhere_does_not_change_it),
        cmocka_unit_test(test_who_finds_it_removed_makes_it_anew),
        cmocka_unit_test(test_without_cpu_idle_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

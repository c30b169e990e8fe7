/* Groups that are used again, and groups that are emptied before they go: in directories that look
 * like those of the two kinds of trees. */
#include "cgroup.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "unit.h"

struct place {
    char path[64];
    struct cgroup_host host;
    struct cgroup_jail jail;
};

static void put(int dir, const char *file, const char *text) {
    int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void is(int dir, const char *file, const char *want) {
    struct buf text;
    buf_init(&text, 256);
    assert_int_equal(fd_read_file(dir, file, &text, NULL), 0);
    assert_string_equal(text.len > 0 ? text.data : "", want);
    buf_done(&text);
}

static int make(const char *parent, const char *name) {
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", parent, name);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void begin(struct place *p, bool v2) {
    memset(p, 0, sizeof *p);
    (void)snprintf(p->path, sizeof p->path, "/tmp/unit-keep-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->host.count = 1;
    p->host.tree[0].roles = CGROUP_ROLES;
    p->host.tree[0].v2 = v2;
    p->host.tree[0].base_fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cgroup_jail_init(&p->jail);
    p->jail.fd[0] = dup(p->host.tree[0].base_fd);
}

static int gone(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void end(struct place *p) {
    cgroup_keep_done(&p->host, &p->jail);
    (void)close(p->jail.fd[0]);
    (void)close(p->host.tree[0].base_fd);
    assert_int_equal(nftw(p->path, gone, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A step of a sandbox that is over, in a group of v1 that holds `bytes`. */
static void step(struct place *p, const char *name, const char *bytes, struct cgroup_step *s) {
    cgroup_step_init(s);
    s->own = s->keep = true;
    s->fd[0] = make(p->path, name);
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    memcpy(s->mem_name, s->name, sizeof s->mem_name);
    put(s->fd[0], "cgroup.procs", "");
    put(s->fd[0], "memory.usage_in_bytes", bytes);
    put(s->fd[0], "memory.max_usage_in_bytes", "7");
    put(s->fd[0], "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
}

static void test_kept(void **state) {
    (void)state;
    struct place p;
    struct cgroup_step first, next;
    begin(&p, false);
    step(&p, "s1", "4096\n", &first);
    assert_true(cgroup_keep_put(&p.host, &p.jail, &first));
    assert_int_equal(first.fd[0], -1);
    cgroup_step_init(&next);
    assert_true(cgroup_keep_take(&p.host, &p.jail, &next));
    assert_string_equal(next.mem_name, "s1");
    assert_int_equal(next.ooms_base, 3);
    is(next.fd[0], "memory.max_usage_in_bytes", "0");
    assert_int_equal(p.jail.kept_count, 0);
    fd_close(&next.fd[0]);
    assert_false(cgroup_keep_take(&p.host, &p.jail, &next));
    end(&p);
}

/* What holds much, has a process, is a run's or an engine's, or is one too many, goes as always. */
static void test_not_kept(void **state) {
    (void)state;
    struct place p;
    struct cgroup_step s[CGROUP_KEPT_MAX + 4];
    begin(&p, false);
    step(&p, "much", "2097153\n", &s[0]);
    assert_false(cgroup_keep_put(&p.host, &p.jail, &s[0]));
    step(&p, "used", "0\n", &s[1]);
    put(s[1].fd[0], "cgroup.procs", "1\n");
    assert_false(cgroup_keep_put(&p.host, &p.jail, &s[1]));
    step(&p, "run", "0\n", &s[2]);
    s[2].own = false;
    assert_false(cgroup_keep_put(&p.host, &p.jail, &s[2]));
    s[2].own = p.jail.adopted = true;
    assert_false(cgroup_keep_put(&p.host, &p.jail, &s[2]));
    p.jail.adopted = s[2].keep = false;
    assert_false(cgroup_keep_put(&p.host, &p.jail, &s[2]));
    for (int i = 3; i < CGROUP_KEPT_MAX + 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%d", i);
        step(&p, name, "0\n", &s[i]);
        assert_true(cgroup_keep_put(&p.host, &p.jail, &s[i]) == (i < CGROUP_KEPT_MAX + 3));
    }
    for (int i = 0; i < CGROUP_KEPT_MAX + 4; i++) {
        fd_close(&s[i].fd[0]);
    }
    end(&p);
}

/* One that was kept and holds much by now (its pages came back to it) is given up. */
static void test_given_up(void **state) {
    (void)state;
    struct place p;
    struct cgroup_step first, next;
    begin(&p, false);
    step(&p, "s1", "0\n", &first);
    assert_true(cgroup_keep_put(&p.host, &p.jail, &first));
    put(p.jail.kept[0].fd, "memory.usage_in_bytes", "9999999\n");
    cgroup_step_init(&next);
    assert_false(cgroup_keep_take(&p.host, &p.jail, &next));
    assert_int_equal(p.jail.kept_count, 0);
    assert_int_equal(next.fd[0], -1);
    end(&p);
}

static void test_many(void **state) {
    (void)state;
    struct place p;
    struct cgroup_dying dying = {.most = 4096};
    begin(&p, true);
    put(p.host.tree[0].base_fd, "cgroup.stat", "nr_descendants 1\nnr_dying_descendants 4096\n");
    assert_false(cgroup_dying_many(&dying, &p.host));
    put(p.host.tree[0].base_fd, "cgroup.stat", "nr_descendants 1\nnr_dying_descendants 4097\n");
    assert_false(cgroup_dying_many(&dying, &p.host)); /* it looked a moment ago */
    dying.looked_ns = 1;
    assert_true(cgroup_dying_many(&dying, &p.host));
    assert_int_equal(dying.count, 4097);
    put(p.jail.fd[0], "cgroup.stat", "nr_dying_descendants 3\n");
    assert_int_equal(cgroup_jail_dying(&p.host, &p.jail), 3 * CGROUP_DYING_BYTES);
    p.host.lacks = CGROUP_MEMORY; /* nothing holds a group then */
    dying.looked_ns = 1;
    assert_false(cgroup_dying_many(&dying, &p.host));
    end(&p);
}

static void test_emptied(void **state) {
    (void)state;
    struct place p;
    struct cgroup_step s;
    for (int v2 = 0; v2 < 2; v2++) {
        const char *now = v2 ? "memory.current" : "memory.usage_in_bytes";
        const char *take = v2 ? "memory.reclaim" : "memory.force_empty";
        begin(&p, v2);
        cgroup_step_init(&s);
        s.fd[0] = make(p.path, "s1");
        cgroup_step_empty(&p.host, &s); /* a kernel without it */
        put(s.fd[0], take, "");
        put(s.fd[0], now, "4194305\n");
        cgroup_step_empty(&p.host, &s);
        is(s.fd[0], take, "");
        put(s.fd[0], now, "8192\n");
        cgroup_step_empty(&p.host, &s);
        is(s.fd[0], take, v2 ? "8192" : "0");
        fd_close(&s.fd[0]);
        end(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),     cmocka_unit_test(test_not_kept),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_many),
        cmocka_unit_test(test_emptied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Process 1 of a jail that was taken over. It says what it likes, when it likes, with what it
 * likes: the limits hold, nothing but the jail itself suffers, and the loop goes on. jail.c, exec.c
 * and what is between them are the real ones; the kernel is played. */
#include "jail.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fake_process1.h"
#include "layers.h"

#define MS CLOCK_NS_PER_MS
#define WALL_MS 50u
#define CPU_MS 20u
#define DISK ((uint64_t)8 << 20)
#define INODES 512u

static struct world {
    struct jail_host host;
    struct cgroup_host cgroups;
    struct jail *jail;
    unsigned ready, failed, ended, gone, scheduled, killed;
    bool renews, kept; /* asks for another child as soon as one has ended; … which is there still */
    int master;
    struct wire_end end;
} w;

int layers_use(const struct layers_volume *v, uint64_t *bytes, uint64_t *inodes, bool *full) {
    (void)v, (void)bytes, (void)inodes, (void)full;
    return -1;
}

int sched_setscheduler(pid_t pid, int policy, const struct sched_param *param) {
    (void)pid, (void)policy, (void)param;
    w.scheduled++;
    return 0;
}

/* pidfd_send_signal(2) to who is named by a directory in /proc is played: the number of every child
 * is this process's. */
long syscall(long number, ...) {
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    struct stat st;
    if (number == SYS_pidfd_send_signal && fstat((int)a[0], &st) == 0 && S_ISDIR(st.st_mode)) {
        w.killed += (int)a[1] == SIGKILL;
        return 0;
    }
    long (*real)(long, ...) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void is_ready(void *arg, struct jail *j) {
    (void)arg, (void)j;
    w.ready++;
}

static void has_failed(void *arg, struct jail *j, const char *stage, int code, const char *text) {
    (void)arg, (void)j;
    print_message("# failed: %s: %s\n", stage, text);
    assert_true(code >= 0 && code <= WIRE_ERRNO_MAX);
    w.failed++;
}

static void has_ended(void *arg, struct jail *j, void *owner, const struct wire_end *end) {
    struct err err = {0};
    (void)arg, (void)j, (void)owner;
    w.ended++;
    w.end = *end;
    wire_head_init(&w.end.head, WIRE_END, sizeof(w.end), 1, 7);
    unit_works(wire_check_reply(&w.end, sizeof(w.end), 0, &err), err);
    if (w.renews && jail_is_spent(j)) {
        const struct exec *x = j->execs;
        unit_works(jail_renew(j, &err), err);
        w.kept = x != NULL && j->execs == x;
    }
}

static void has_terminal(void *arg, struct jail *j, void *owner, int master) {
    (void)arg, (void)j, (void)owner;
    w.master = master;
}

static void is_gone(void *arg, struct jail *j) {
    (void)arg;
    assert_ptr_equal(j, w.jail);
    w.gone++;
}

static const struct jail_events events = {.ready = is_ready,
                                          .failed = has_failed,
                                          .ended = has_ended,
                                          .terminal = has_terminal,
                                          .gone = is_gone};

static struct limits limits(void) {
    struct limits l = {0};
    l.v[LIMIT_WALL_MS] = WALL_MS;
    l.v[LIMIT_CPU_MS] = CPU_MS;
    l.v[LIMIT_MEM_BYTES] = (uint64_t)64 << 20;
    l.v[LIMIT_PIDS] = 16;
    l.v[LIMIT_CPUS_MILLI] = 1000;
    l.v[LIMIT_DISK_BYTES] = DISK;
    l.v[LIMIT_INODES] = INODES;
    return l;
}

/* All that follows from what has happened, without time going by. */
static void follows(void) {
    struct err err = {0};
    for (int quiet = 0; quiet < 3; quiet++) {
        if (fake_works())
            quiet = 0;
        unit_works(loop_once(w.host.loop, 0, &err), err);
    }
}

static void passes(uint64_t ns) {
    for (uint64_t until = fake.now_ns + ns; fake.now_ns < until; fake.now_ns += MS / 2)
        follows();
}

static void begin(void) {
    static struct sock_filter insn;
    static const struct seccomp_program bpf = {.insns = &insn, .len = 1};
    struct err err = {0};
    const struct jail_plan plan = {
        .template_ns = -1, .bpf = &bpf, .limits = limits(), .ceiling = limits()};
    memset(&w, 0, sizeof(w));
    w.host = (struct jail_host){.loop = loop_new(&err),
                                .cgroups = &w.cgroups,
                                .cpus = 1,
                                .maker = &jail_native,
                                .dying.most = CGROUP_DYING_MOST};
    assert_non_null(w.host.loop);
    fake.now_ns = 1000 * CLOCK_NS_PER_S;
    w.jail = jail_new(&w.host, &plan, &events, NULL, &err);
    assert_non_null(w.jail);
}

static void begin_ready(void) {
    memset(&fake, 0, sizeof(fake));
    begin();
    follows();
    assert_int_equal(w.ready, 1);
}

/* A command runs: as far as the runner knows. */
static struct fake_child *runs(uint32_t flags) {
    struct err err = {0};
    const struct exec_request q = {
        .number = 7, .kind = WIRE_EXEC_COMMAND, .flags = flags, .limits = limits()};
    unit_works(jail_exec(w.jail, &q, &w, &err), err);
    follows();
    struct fake_child *c = fake_running(0);
    assert_non_null(c);
    return c;
}

static void says_started(struct fake_child *c, uint64_t mono_ns, uint64_t cpu_ns) {
    const struct initmsg_report r = {.type = INITMSG_STARTED, .mono_ns = mono_ns, .cpu_ns = cpu_ns};
    assert_int_equal(fd_send(c->sock, &r, sizeof(r), NULL, 0, NULL), 0);
}

static void finish(void) {
    jail_kill(w.jail);
    for (int i = 0; i < 100 && w.gone == 0; i++)
        passes(MS);
    assert_int_equal(w.gone, 1);
    jail_free(w.jail);
    loop_free(w.host.loop);
    fd_close(&fake.jail.control);
    memset(&fake, 0, sizeof(fake));
}

static void the_wall_clock_does_not_start_in_the_future(void **state) {
    (void)state;
    const uint64_t lies[] = {UINT64_MAX, UINT64_MAX / 2, UINT64_MAX - WALL_MS * MS + 1, 0};
    for (size_t i = 0; i < UNIT_COUNT(lies); i++) {
        begin_ready();
        says_started(runs(0), lies[i], 0);
        passes(3 * WALL_MS * MS);
        assert_int_equal(w.ended, 1);
        assert_int_equal(w.end.cause, CAUSE_WALL_TIME);
        assert_true(w.end.observed >= WALL_MS && w.end.observed <= 3 * WALL_MS);
        finish();
    }
}

static void what_was_used_is_not_called_the_childs(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    struct limits l = limits();
    l.v[LIMIT_WALL_MS] = 60000;
    const struct exec_request q = {.number = 7, .kind = WIRE_EXEC_COMMAND, .limits = l};
    unit_works(jail_exec(w.jail, &q, &w, &err), err);
    follows();
    says_started(fake_running(0), fake.now_ns, UINT64_MAX);
    for (int i = 0; i < 3000 && w.ended == 0; i++) {
        fake.cpu_ns += MS;
        passes(MS);
    }
    assert_int_equal(w.ended, 1);
    assert_int_equal(w.end.cause, CAUSE_CPU_TIME);
    finish();
}

static void an_end_in_the_future_is_one_of_now(void **state) {
    (void)state;
    begin_ready();
    struct fake_child *c = runs(0);
    fake_starts(c);
    passes(MS);
    const struct initmsg_report r = {
        .type = INITMSG_EXITED, .pid = c->pid, .mono_ns = UINT64_MAX / 2};
    c->killed = true;
    assert_int_equal(fd_send(fake.jail.control, &r, sizeof(r), NULL, 0, NULL), 0);
    passes(MS);
    assert_int_equal(w.ended, 1);
    assert_true(w.end.usage.wall_ns < 10 * MS);
    finish();
}

/* A server that is told nonsense gives the whole runner up, and with it the runs of all others. */
static void whatever_it_says_can_be_told(void **state) {
    (void)state;
    const int32_t codes[] = {ENOENT, 0, -1, INT32_MIN, WIRE_ERRNO_MAX + 1, INT32_MAX};
    const int32_t statuses[] = {65, 100, 126, 127, 0x80 | 100, 0x137f, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < UNIT_COUNT(codes); i++) {
        struct initmsg_report r = {.type = INITMSG_REFUSED, .code = codes[i]};
        memset(r.stage, 0xff, sizeof(r.stage));
        memset(r.path, 0xff, sizeof(r.path));
        begin_ready();
        struct fake_child *c = runs(0);
        assert_int_equal(fd_send(c->sock, &r, sizeof(r), NULL, 0, NULL), 0);
        fake_ends(c, 125 << 8);
        passes(MS);
        assert_int_equal(w.ended, 1);
        assert_int_equal(w.end.cause, CAUSE_START);
        finish();
        r.type = INITMSG_FAILED;
        begin_ready();
        assert_int_equal(fd_send(fake.jail.control, &r, sizeof(r), NULL, 0, NULL), 0);
        follows();
        assert_int_equal(w.failed, 1);
        finish();
    }
    for (size_t i = 0; i < UNIT_COUNT(statuses); i++) {
        begin_ready();
        struct fake_child *c = runs(0);
        fake_starts(c);
        fake_ends(c, statuses[i]);
        passes(MS);
        assert_int_equal(w.ended + w.failed, 1);
        finish();
    }
}

/* Each descriptor that is not what it should be costs the runner a process. */
static void a_child_that_goes_on_talking_is_not_heard(void **state) {
    (void)state;
    char byte;
    begin_ready();
    struct fake_child *c = runs(WIRE_EXEC_PTY);
    const struct initmsg_report r = {.type = INITMSG_TERMINAL};
    for (int i = 0; i < 40; i++) {
        fd_cleanup int odd = eventfd(0, EFD_CLOEXEC);
        (void)fd_send(c->sock, &r, sizeof(r), &odd, 1, NULL);
        follows();
    }
    assert_true(recv(w.jail->execs->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0);
    passes(2 * WALL_MS * MS);
    finish();
}

/* That it does not block is a property of the open file, which all who have it can change: who
 * reads and writes for all users is not to wait for one of them. */
static void nobody_inside_has_the_master_of_a_terminal(void **state) {
    (void)state;
    begin_ready();
    struct fake_child *c = runs(WIRE_EXEC_PTY);
    const struct initmsg_report r = {.type = INITMSG_TERMINAL};
    int kept = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    struct initmsg_word word = {0};
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    assert_true(kept >= 0);
    assert_int_equal(fd_send(c->sock, &r, sizeof(r), &kept, 1, NULL), 0);
    struct err err = {0};
    for (int i = 0; i < 3; i++) /* not follows(): what is said to the child is read here */
        unit_works(loop_once(w.host.loop, 0, &err), err);
    assert_true(w.master > 0);
    assert_int_equal(fcntl(kept, F_SETFL, 0), 0);
    assert_true(fcntl(w.master, F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_recv(c->sock, &word, sizeof(word), fds, &nfds, NULL, NULL), sizeof(word));
    assert_true(word.type == INITMSG_SLAVE && word.first == 0 && nfds == 1);
    assert_int_equal(write(fds[0], "x", 1), 1);
    char byte = 0;
    assert_int_equal(read(w.master, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    fd_close(&fds[0]);
    fd_close(&w.master);
    fd_close(&kept);
    finish();
}

static void descriptors_come_with_nothing_but_the_setup(void **state) {
    (void)state;
    begin_ready();
    struct fake_child *c = runs(0);
    fd_cleanup int odd = eventfd(0, EFD_CLOEXEC);
    fake_says(fake.jail.control, INITMSG_EXITED, c->pid, 0, &odd, 1);
    follows();
    assert_int_equal(w.failed, 1);
    finish();
}

/* The groups of such children would be tried again and again, all of them. */
static void a_child_that_waits_and_is_called_dead_is(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    unit_works(jail_make_sandbox(w.jail, &err), err);
    struct fake_child *c = &fake.jail.child[0];
    fake_says(fake.jail.control, INITMSG_EXITED, c->pid, 0, NULL, 0);
    follows();
    assert_true(c->killed);
    finish();
}

/* It is dead and was waited for, and what it said before is heard after that. */
static void of_a_dead_one_nothing_is_looked_up(void **state) {
    (void)state;
    memset(&fake, 0, sizeof(fake));
    begin();
    struct netns_set *networks = netns_new(w.host.loop);
    assert_non_null(networks);
    w.host.networks = networks;
    assert_true(fake_works());
    jail_kill(w.jail);
    jail_hear(w.jail);
    assert_int_equal(w.jail->net_fd, -1);
    assert_int_equal(w.jail->pid_ns, 0);
    w.host.networks = NULL;
    netns_free(networks);
    finish();
}

static void children_that_die_are_not_made_as_fast_as_they_die(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    unit_works(jail_make_sandbox(w.jail, &err), err);
    struct limits l = limits();
    l.v[LIMIT_WALL_MS] = 60000;
    l.v[LIMIT_CPU_MS] = 60000;
    const struct exec_request q = {.number = 7, .kind = WIRE_EXEC_COMMAND, .limits = l};
    unit_works(jail_exec(w.jail, &q, &w, &err), err);
    follows();
    for (int i = 0; i < 1000 && fake.jail.children < FAKE_CHILDREN - 1; i++) {
        for (unsigned n = 0; n < fake.jail.children; n++) {
            struct fake_child *c = &fake.jail.child[n];
            if (!c->running && !c->killed && c->sock >= 0)
                fake_ends(c, SIGKILL);
        }
        passes(MS);
    }
    assert_true(fake.jail.children < 8);
    finish();
}

/* Somebody outside removes groups that are empty: for a moment those of a child are. */
static void a_sandbox_goes_on_when_the_groups_of_a_child_are_removed(void **state) {
    (void)state;
    struct err err = {0};
    for (unsigned times = 1; times <= 10; times += 3) {
        begin_ready();
        unit_works(jail_make_sandbox(w.jail, &err), err);
        fake.homeless = times;
        runs(0);
        unsigned before = fake.attached;
        passes(100 * MS);
        if (times > 4) { /* it is something else */
            assert_int_equal(w.failed, 1);
        } else {
            assert_int_equal(fake.homeless, 0);
            assert_int_equal(w.killed, times);
            assert_int_equal(w.failed, 0);
            assert_true(fake.attached > before && jail_is_ready(w.jail));
            for (unsigned n = 0; n + 2 < fake.jail.children; n++)
                assert_true(n == 0 || fake.jail.child[n].sock < 0); /* told to go */
        }
        finish();
    }
}

static void who_says_hello_from_elsewhere_is_not_moved(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    unit_works(jail_make_sandbox(w.jail, &err), err);
    runs(0);
    unsigned before = fake.attached;
    w.jail->pid_ns++; /* as if the number of who spoke were somebody else's by now */
    passes(20 * MS);
    assert_int_equal(fake.attached, before);
    assert_int_equal(w.failed, 1);
    finish();
}

static void who_has_the_number_of_a_dead_child_is_left_alone(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    unit_works(jail_make_sandbox(w.jail, &err), err);
    runs(0);
    passes(20 * MS);
    const struct exec_request q = {.number = 8, .kind = WIRE_EXEC_COMMAND, .limits = limits()};
    assert_true(jail_is_ready(w.jail));
    w.jail->pid_ns++;
    unit_works(jail_exec(w.jail, &q, &err, &err), err);
    assert_int_equal(w.scheduled, 0);
    finish();
}

/* Always something to read, and no such request is known. */
static void what_is_no_listener_does_not_keep_the_loop_awake(void **state) {
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.listener = eventfd(1, EFD_CLOEXEC);
    begin();
    follows();
    assert_int_equal(w.failed, 1);
    fd_close(&fake.listener);
    finish();
}

static void only_a_file_system_of_the_jails_own_is_resized(void **state) {
    (void)state;
    struct err err = {0};
    struct statfs fs;
    char dir[] = "/tmp/unit-jail-XXXXXX";
    assert_non_null(mkdtemp(dir));
    if (mount("unit", dir, "tmpfs", 0, "size=16m,nr_inodes=100") != 0) {
        assert_int_equal(rmdir(dir), 0);
        skip();
    }
    memset(&fake, 0, sizeof(fake));
    fake.root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    begin();
    follows();
    struct limits l = limits();
    l.v[LIMIT_DISK_BYTES] = DISK / 2;
    int rc = jail_set_limits(w.jail, &l, &err);
    assert_int_equal(fstatfs(fake.root, &fs), 0);
    int changed = fs.f_blocks * (uint64_t)fs.f_bsize != (uint64_t)16 << 20;
    fd_close(&fake.root);
    finish();
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_true(rc == -1 && !changed);
}

/* They do it side by side, and the jail is ready when both have. */
static void process_1_is_sealed_while_its_child_is_confined(void **state) {
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.slow = true;
    begin();
    follows();
    bool ready = w.ready == 1 && w.failed == 0 && jail_is_ready(w.jail);
    finish();
    assert_true(ready);
}

static void nothing_runs_before_process_1_is_sealed(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        memset(&fake, 0, sizeof(fake));
        fake.silent = true;
        fake.slow = slow != 0;
        begin();
        follows();
        assert_false(jail_is_ready(w.jail));
        assert_int_equal(w.ready, 0);
        finish();
    }
}

static void who_is_sealed_out_of_order_is_not_trusted(void **state) {
    (void)state;
    /* before it was told to, and again */
    for (int early = 0; early < 2; early++) {
        memset(&fake, 0, sizeof(fake));
        begin();
        if (early == 0)
            follows();
        fake_says(fake.jail.control, INITMSG_SEALED, 0, 0, NULL, 0);
        follows();
        assert_int_equal(w.failed, 1);
        finish();
    }
}

/* Groups that are over go before the next is made; not of one that is just being told of. */
static void who_hears_of_an_end_may_ask_for_the_next_child(void **state) {
    (void)state;
    struct err err = {0};
    begin_ready();
    unit_works(jail_make_sandbox(w.jail, &err), err);
    w.renews = true;
    struct fake_child *c = runs(0);
    fake_starts(c);
    fake_ends(c, 0);
    follows();
    assert_int_equal(w.ended, 1);
    assert_true(w.kept);
    passes(10 * MS);
    assert_null(w.jail->execs); /* but then it goes */
    finish();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_1_is_sealed_while_its_child_is_confined),
        cmocka_unit_test(nothing_runs_before_process_1_is_sealed),
        cmocka_unit_test(who_is_sealed_out_of_order_is_not_trusted),
        cmocka_unit_test(the_wall_clock_does_not_start_in_the_future),
        cmocka_unit_test(what_was_used_is_not_called_the_childs),
        cmocka_unit_test(an_end_in_the_future_is_one_of_now),
        cmocka_unit_test(whatever_it_says_can_be_told),
        cmocka_unit_test(a_child_that_goes_on_talking_is_not_heard),
        cmocka_unit_test(nobody_inside_has_the_master_of_a_terminal),
        cmocka_unit_test(descriptors_come_with_nothing_but_the_setup),
        cmocka_unit_test(a_child_that_waits_and_is_called_dead_is),
        cmocka_unit_test(of_a_dead_one_nothing_is_looked_up),
        cmocka_unit_test(children_that_die_are_not_made_as_fast_as_they_die),
        cmocka_unit_test(a_sandbox_goes_on_when_the_groups_of_a_child_are_removed),
        cmocka_unit_test(who_says_hello_from_elsewhere_is_not_moved),
        cmocka_unit_test(who_has_the_number_of_a_dead_child_is_left_alone),
        cmocka_unit_test(what_is_no_listener_does_not_keep_the_loop_awake),
        cmocka_unit_test(only_a_file_system_of_the_jails_own_is_resized),
        cmocka_unit_test(who_hears_of_an_end_may_ask_for_the_next_child),
    };
    return cmocka_run_group_tests_name("jail", tests, NULL, NULL);
}

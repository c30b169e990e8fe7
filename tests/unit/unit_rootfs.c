#include "rootfs.h"

#include <stdlib.h>
#include <sys/sysmacros.h>

#include "buf.h"
#include "unit_template.h"
#include "wire.h"

static void build_host(struct rootfs *r) {
    struct rootfs_config cfg = {ROOTFS_IMAGE_HOST, -1, WIRE_WRITABLE_ALL, false};
    struct err e;
    r->mnt_ns = -1;
    unit_works(rootfs_build(&cfg, r, &e), e);
    assert_true(r->mnt_ns >= 0);
}

/* ---- what the template of image host holds ---- */

static int shape(void) {
    static const struct {
        const char *path;
        unsigned maj, min;
    } nodes[] = {{"/dev/null", 1, 3},   {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
                 {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};
    static const char *const empty[] = {"/run",       "/root",      "/tmp",     "/var/tmp",
                                        "/home/user", "/workspace", "/dev/pts", "/dev/shm"};
    static const char *const absent[] = {"/sys",
                                         "/opt",
                                         "/srv",
                                         "/mnt",
                                         "/boot",
                                         "/var/lib",
                                         "/etc/shadow",
                                         "/etc/sudoers",
                                         "/etc/ssh",
                                         "/etc/fstab",
                                         "/etc/ssl/private",
                                         "/etc/gitconfig",
                                         "/etc/npmrc",
                                         "/etc/pip.conf",
                                         "/etc/environment",
                                         "/etc/apt",
                                         "/dev/core",
                                         "/dev/kmsg"};
    struct stat st;
    for (size_t i = 0; i < UNIT_COUNT(nodes); i++) {
        CHECK(stat(nodes[i].path, &st) == 0, "%s", nodes[i].path);
        CHECK(S_ISCHR(st.st_mode) && (st.st_mode & 07777) == 0666, "%s", nodes[i].path);
        CHECK(st.st_rdev == makedev(nodes[i].maj, nodes[i].min), "%s", nodes[i].path);
    }
    CHECK(count_entries("/dev") == 13, "/dev has %d entries", count_entries("/dev"));
    for (size_t i = 0; i < UNIT_COUNT(empty); i++) {
        CHECK(count_entries(empty[i]) == 0, "%s has %d", empty[i], count_entries(empty[i]));
    }
    for (size_t i = 0; i < UNIT_COUNT(absent); i++) {
        CHECK(lstat(absent[i], &st) != 0 && errno == ENOENT, "%s is there", absent[i]);
    }
    CHECK(stat("/bin/sh", &st) == 0 && stat("/usr/bin/env", &st) == 0, "programs are missing");
    CHECK(stat("/tmp", &st) == 0 && (st.st_mode & 07777) == 01777, "/tmp has mode %o", st.st_mode);
    CHECK(count_entries("/proc") > 0, "no procfs");
    CHECK(access("/proc/self", F_OK) != 0, "/proc names a process");
    CHECK(access("/proc/1", F_OK) != 0, "/proc names a process");
    return 0;
}

static void test_shape(void **state) {
    (void)state;
    struct rootfs r;
    if (!is_root()) {
        skip();
    }
    build_host(&r);
    in_template(&r, shape);
    rootfs_done(&r);
    assert_int_equal(r.mnt_ns, -1);
    rootfs_done(&r);
    rootfs_done(NULL);
}

/* ---- /etc ---- */

static int etc_holds(void) {
    static const struct {
        const char *path, *text;
    } files[] = {
        {"/etc/hostname", "pinfold\n"},          {"/etc/hosts", "127.0.0.1 localhost"},
        {"/etc/hosts", "::1 localhost"},         {"/etc/nsswitch.conf", "hosts: files\n"},
        {"/etc/passwd", "user:x:1000:1000:"},    {"/etc/passwd", "root:x:0:0:"},
        {"/etc/passwd", "nobody:x:65534:"},      {"/etc/group", "user:x:1000:"},
        {"/etc/machine-id", "70696e666f6c6470"},
    };
    char text[8192];
    for (size_t i = 0; i < UNIT_COUNT(files); i++) {
        CHECK(read_text(files[i].path, text, sizeof text) == 0, "%s", files[i].path);
        CHECK(strstr(text, files[i].text) != NULL, "%s says: %.200s", files[i].path, text);
    }
    CHECK(read_text("/etc/resolv.conf", text, sizeof text) == 0, "resolv.conf");
    CHECK(strstr(text, "nameserver") == NULL, "resolv.conf names a server");
    CHECK(read_text("/etc/passwd", text, sizeof text) == 0, "passwd");
    int lines = 0;
    for (const char *p = text; *p != '\0'; p++) {
        lines += *p == '\n';
    }
    CHECK(lines == 3, "passwd has %d lines", lines);
    return 0;
}

/* Every file of it is readable by all, a regular file, a link or a directory. */
static int etc_walk(const char *path, int depth) {
    char name[4096];
    struct stat st;
    DIR *d = opendir(path);
    CHECK(d != NULL && depth < 8, "%s", path);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        CHECK(lstat(name, &st) == 0, "%s", name);
        CHECK(S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode), "%s", name);
        CHECK(S_ISLNK(st.st_mode) || (st.st_mode & (S_IROTH | S_IWOTH)) == S_IROTH, "%s", name);
        CHECK((st.st_mode & (S_ISUID | S_ISGID)) == 0, "%s", name);
        CHECK(strstr(name, "private") == NULL && strstr(name, "password") == NULL, "%s", name);
        if (S_ISDIR(st.st_mode) && etc_walk(name, depth + 1) != 0) {
            return 1;
        }
    }
    (void)closedir(d);
    return 0;
}

static int etc_all(void) {
    return etc_holds() != 0 ? 1 : etc_walk("/etc", 0);
}

static void test_etc(void **state) {
    (void)state;
    struct rootfs r;
    if (!is_root()) {
        skip();
    }
    build_host(&r);
    in_template(&r, etc_all);
    rootfs_done(&r);
}

/* ---- what process 1 of a jail can and cannot do in a copy ---- */

static int attempt_remount_root(void) {
    return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static int attempt_remount_super(void) {
    return mount(NULL, "/", NULL, MS_REMOUNT, NULL);
}

static int attempt_remount_usr(void) {
    return mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL);
}

static int attempt_usr_suid(void) {
    return mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
}

static int attempt_setattr(void) {
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
    return mount_setattr(AT_FDCWD, "/usr", AT_RECURSIVE, &attr, sizeof attr);
}

static int attempt_umount_usr(void) {
    return umount2("/usr", MNT_DETACH);
}

static int attempt_umount_dev(void) {
    return umount2("/dev", MNT_DETACH);
}

static int attempt_umount_proc(void) {
    return umount2("/proc", MNT_DETACH);
}

static int attempt_copy_writable(void) {
    int rc = mount("/usr/bin", "/home/user", NULL, MS_BIND, NULL);
    return rc != 0
               ? rc
               : mount(NULL, "/home/user", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL);
}

/* A copy without the covers would show what they hide. */
static int attempt_bare_usr(void) {
    if (access("/usr/local/etc", F_OK) != 0) {
        errno = EINVAL; /* this host has nothing to hide */
        return -1;
    }
    return (int)syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE);
}

static int attempt_write_root(void) {
    return attempt_write("/x");
}
static int attempt_write_usr(void) {
    return attempt_write("/usr/bin/x");
}
static int attempt_write_etc(void) {
    return attempt_write("/etc/passwd");
}
static int attempt_write_dev(void) {
    return attempt_write("/dev/x");
}
static int attempt_write_run(void) {
    return attempt_write("/run/x");
}
static int attempt_mkdir_root(void) {
    return mkdir("/x", 0700);
}
static int attempt_rename_dev(void) {
    return rename("/dev/null", "/dev/zero");
}
static int attempt_chmod_dev(void) {
    return chmod("/dev/null", 0600);
}
static int attempt_mknod(void) {
    return mknod("/workspace/n", S_IFCHR | 0666, makedev(1, 3));
}
static int attempt_root_home(void) {
    int n = count_entries("/root");
    return n < 0 ? -1 : 0;
}

struct attempt {
    const char *name;
    int (*run)(void);
    int codes[2]; /* any of these errno values is right */
};

static const struct attempt refused[] = {
    {"remount / writable", attempt_remount_root, {EPERM, EPERM}},
    {"remount the tmpfs of / writable", attempt_remount_super, {EPERM, EPERM}},
    {"remount /usr writable", attempt_remount_usr, {EPERM, EPERM}},
    {"remount /usr without nosuid", attempt_usr_suid, {EPERM, EPERM}},
    {"clear read-only by mount_setattr", attempt_setattr, {EPERM, EPERM}},
    {"umount /usr", attempt_umount_usr, {EINVAL, EPERM}},
    {"umount /dev", attempt_umount_dev, {EINVAL, EPERM}},
    {"umount the template's /proc", attempt_umount_proc, {EINVAL, EPERM}},
    {"bind /usr/bin and remount it writable", attempt_copy_writable, {EPERM, EPERM}},
    {"copy /usr without what covers its parts", attempt_bare_usr, {EINVAL, EPERM}},
    {"create /x", attempt_write_root, {EROFS, EACCES}},
    {"create /usr/bin/x", attempt_write_usr, {EROFS, EACCES}},
    {"write /etc/passwd", attempt_write_etc, {EROFS, EACCES}},
    {"create /dev/x", attempt_write_dev, {EROFS, EACCES}},
    {"create /run/x", attempt_write_run, {EROFS, EACCES}},
    {"mkdir /x", attempt_mkdir_root, {EROFS, EACCES}},
    {"rename /dev/null", attempt_rename_dev, {EROFS, EACCES}},
    {"chmod /dev/null", attempt_chmod_dev, {EROFS, EPERM}},
    {"list /root", attempt_root_home, {EACCES, EACCES}},
};

static int try_refused(void) {
    for (size_t i = 0; i < UNIT_COUNT(refused); i++) {
        errno = 0;
        int rc = refused[i].run();
        CHECK(rc < 0, "it worked: %s", refused[i].name);
        CHECK(errno == refused[i].codes[0] || errno == refused[i].codes[1], "%s", refused[i].name);
    }
    return 0;
}

static void test_refused(void **state) {
    (void)state;
    struct rootfs r;
    if (!is_root()) {
        skip();
    }
    build_host(&r);
    in_jail(&r, try_refused);
    rootfs_done(&r);
}

/* The mounts that process 1 makes, in its order. */
static int try_setup(void) {
    static const struct {
        const char *from, *to;
    } binds[] = {{"/workspace/home", "/home/user"},
                 {"/workspace/tmp", "/tmp"},
                 {"/workspace/var_tmp", "/var/tmp"},
                 {"/workspace/shm", "/dev/shm"},
                 {"/workspace/workspace", "/workspace"}};
    char text[64];
    CHECK(mount("tmpfs", "/workspace", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=64") == 0,
          "tmpfs");
    for (size_t i = 0; i < UNIT_COUNT(binds); i++) {
        CHECK(mkdir(binds[i].from, 0755) == 0, "%s", binds[i].from);
        CHECK(mount(binds[i].from, binds[i].to, NULL, MS_BIND, NULL) == 0, "%s", binds[i].to);
        (void)snprintf(text, sizeof text, "%s/file", binds[i].to);
        CHECK(attempt_write(text) == 0, "%s", text);
    }
    CHECK(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") == 0,
          "proc");
    CHECK(mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                "newinstance,ptmxmode=0666,mode=0620,max=16") == 0,
          "devpts");
    CHECK(mount("/dev/null", "/proc/cmdline", NULL, MS_BIND, NULL) == 0, "mask");
    CHECK(readlink("/proc/self", text, sizeof text) == 1 && text[0] == '1', "/proc/self");
    CHECK(write_text("/proc/sys/user/max_user_namespaces", "0") == 0, "sysctl");
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0, "pseudo-terminal");
    CHECK(ptsname_r(fd, text, sizeof text) == 0 && strcmp(text, "/dev/pts/0") == 0, "%s", text);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1, "/dev/null");
    fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "x", 1) == -1 && errno == ENOSPC, "/dev/full");
    CHECK(access("/dev/fd/0", F_OK) == 0, "/dev/fd");
    errno = 0;
    CHECK(attempt_mknod() != 0 && errno == EPERM, "device node");
    CHECK(access("/bin/sh", X_OK) == 0, "/bin/sh");
    CHECK(attempt_remount_root() != 0 && attempt_remount_usr() != 0, "remount");
    CHECK(attempt_write_root() != 0 && attempt_write_usr() != 0, "write");
    return 0;
}

static void test_setup(void **state) {
    (void)state;
    struct rootfs r;
    if (!is_root()) {
        skip();
    }
    build_host(&r);
    in_jail(&r, try_setup);
    in_jail(&r, try_setup); /* one template, many jails */
    rootfs_done(&r);
}

/* ---- nothing is left in the process that built it ---- */

static void test_no_trace(void **state) {
    (void)state;
    struct buf before, after;
    struct err e;
    struct rootfs r;
    char cwd[2][4096];
    if (!is_root()) {
        skip();
    }
    buf_init(&before, 1 << 20);
    buf_init(&after, 1 << 20);
    int files = count_entries("/proc/self/fd");
    assert_non_null(getcwd(cwd[0], sizeof cwd[0]));
    unit_works(fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &before, &e), e);
    for (int i = 0; i < 5; i++) {
        struct rootfs_config absent = {"absent", AT_FDCWD, WIRE_WRITABLE_ALL, false};
        build_host(&r);
        rootfs_done(&r);
        unit_fails(rootfs_build(&absent, &r, &e), e, ERR_INVALID);
    }
    unit_works(fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &after, &e), e);
    assert_string_equal(before.data, after.data);
    assert_int_equal(count_entries("/proc/self/fd"), files);
    assert_non_null(getcwd(cwd[1], sizeof cwd[1]));
    assert_string_equal(cwd[0], cwd[1]);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    buf_done(&before);
    buf_done(&after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),    cmocka_unit_test(test_etc),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_setup),
        cmocka_unit_test(test_no_trace),
    };
    if (!template_init()) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

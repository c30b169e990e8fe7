#include "rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "unit.h"
#include "wire.h"

#define ID_BASE 700000 /* outside id of user 0 in the test's jail */

/* Shared with child processes: what went wrong there. */
static char *shared_text;

static void __attribute__((format(printf, 3, 4)))
note(int line, const char *what, const char *fmt, ...) {
    int code = errno;
    va_list ap;
    int at = snprintf(shared_text, 400, "line %d: %s (%s): ", line, what, strerror(code));
    va_start(ap, fmt);
    (void)vsnprintf(shared_text + at, 400, fmt, ap);
    va_end(ap);
}

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            note(__LINE__, #cond, __VA_ARGS__);                                                    \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static bool is_root(void) {
    if (geteuid() == 0) {
        return true;
    }
    print_message("SKIP: mount namespaces can only be made by root\n");
    return false;
}

static void wait_for(pid_t pid) {
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("status 0x%x: %s", (unsigned)status, shared_text);
    }
}

/* Runs `fn` in a child inside the template. */
static void in_template(const struct rootfs *r, int (*fn)(void)) {
    shared_text[0] = '\0';
    pid_t pid = fork();
    if (pid == 0) {
        _exit(setns(r->mnt_ns, CLONE_NEWNS) == 0 ? fn() : 99);
    }
    wait_for(pid);
}

static int write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int code = errno;
    fd_close(&fd);
    errno = code;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Runs `fn` as process 1 and user 0 of a jail that is copied from the template. */
static void in_jail(const struct rootfs *r, int (*fn)(void)) {
    shared_text[0] = '\0';
    int go[2];
    int home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                       CLONE_NEWIPC | CLONE_NEWUTS,
                              .exit_signal = SIGCHLD};
    char path[64], map[64], byte = 0;
    assert_true(home >= 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    assert_int_equal(setns(r->mnt_ns, CLONE_NEWNS), 0);
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        fd_close(&go[1]);
        if (read(go[0], &byte, 1) != 1 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
            _exit(98);
        }
        _exit(fn());
    }
    assert_int_equal(setns(home, CLONE_NEWNS), 0);
    assert_true(pid > 0);
    (void)snprintf(map, sizeof map, "0 %d 65536\n", ID_BASE);
    (void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
    assert_int_equal(write_text(path, map), 0);
    (void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
    assert_int_equal(write_text(path, map), 0);
    assert_int_equal(write(go[1], &byte, 1), 1);
    wait_for(pid);
    fd_close(&go[0]);
    fd_close(&go[1]);
    fd_close(&home);
}

static void build_host(struct rootfs *r) {
    struct rootfs_config cfg = {ROOTFS_IMAGE_HOST, -1, WIRE_WRITABLE_ALL};
    struct err e;
    r->mnt_ns = -1;
    unit_works(rootfs_build(&cfg, r, &e), e);
    assert_true(r->mnt_ns >= 0);
}

/* ---- what the template of image host holds ---- */

static int count_entries(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    if (d == NULL) {
        return -1;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(d);
    return n;
}

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

static int read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    fd_close(&fd);
    if (n < 0) {
        return -1;
    }
    text[n] = '\0';
    return 0;
}

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

static int attempt_write(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -1 : 0;
    fd_close(&fd);
    return rc;
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

/* ---- imported images ---- */

struct images {
    char path[64]; /* the directory of images */
    int fd;
};

static void images_make(struct images *im) {
    (void)snprintf(im->path, sizeof im->path, "/tmp/unit-rootfs-XXXXXX");
    assert_non_null(mkdtemp(im->path));
    im->fd = open(im->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(im->fd >= 0);
}

static void images_remove(struct images *im) {
    char *const argv[] = {(char[]){"rm"}, (char[]){"-rf"}, (char[]){"--"}, im->path, NULL};
    fd_close(&im->fd);
    pid_t pid = fork();
    if (pid == 0) {
        (void)execv("/bin/rm", argv);
        _exit(97);
    }
    wait_for(pid);
}

/* An image NAME with all mount points, but `bad` is what `how` says: a link text, "-" for a regular
 * file, "" for nothing. */
static void images_add(struct images *im, const char *name, const char *bad, const char *how) {
    static const char *const dirs[] = {"",        "proc", "dev",       "tmp", "var",
                                       "var/tmp", "home", "home/user", "etc", "workspace"};
    char path[256];
    assert_int_equal(mkdirat(im->fd, name, 0755), 0);
    for (size_t i = 0; i < UNIT_COUNT(dirs); i++) {
        (void)snprintf(path, sizeof path, "%s/rootfs/%s", name, dirs[i]);
        if (bad == NULL || strcmp(dirs[i], bad) != 0) {
            if (mkdirat(im->fd, path, 0755) != 0) {
                assert_int_equal(errno, ENOENT); /* below a bad directory */
            }
        } else if (strcmp(how, "-") == 0) {
            int fd = openat(im->fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            assert_true(fd >= 0);
            fd_close(&fd);
        } else if (how[0] != '\0') {
            assert_int_equal(symlinkat(how, im->fd, path), 0);
        }
    }
}

static void test_image_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *bad, *how, *says;
    } cases[] = {
        {"proc-link", "proc", "/etc", "step proc: mount target proc is a symbolic link"},
        {"dev-link", "dev", "..", "step dev: mount target dev is a symbolic link"},
        {"tmp-link", "tmp", "/", "step targets: mount target tmp is a symbolic link"},
        {"var-link", "var", "tmp", "step targets: mount target var/tmp is a symbolic link"},
        {"home-link", "home", "/root", "step targets: mount target home/user is a symbolic link"},
        {"work-file", "workspace", "-", "step targets: mount target workspace is not a directory"},
        {"work-none", "workspace", "", "step targets: mount target workspace does not exist"},
        {"no-proc", "proc", "", "step proc: mount target proc does not exist"},
    };
    struct images im;
    struct err e;
    if (!is_root()) {
        skip();
    }
    images_make(&im);
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct rootfs r = {-1};
        struct rootfs_config cfg = {cases[i].name, im.fd, WIRE_WRITABLE_ALL};
        images_add(&im, cases[i].name, cases[i].bad, cases[i].how);
        unit_fails(rootfs_build(&cfg, &r, &e), e, ERR_INVALID);
        if (strstr(e.text, cases[i].says) == NULL || strstr(e.text, cases[i].name) == NULL) {
            fail_msg("%s: %s", cases[i].name, e.text);
        }
        assert_int_equal(r.mnt_ns, -1);
    }
    images_remove(&im);
}

static void test_image_names(void **state) {
    (void)state;
    static const char *const names[] = {"", ".", "..", "../x", "a/b", "-x", "absent", "file"};
    struct images im;
    struct err e;
    if (!is_root()) {
        skip();
    }
    images_make(&im);
    int fd = openat(im.fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    fd_close(&fd);
    for (size_t i = 0; i < UNIT_COUNT(names); i++) {
        struct rootfs r = {-1};
        struct rootfs_config cfg = {names[i], im.fd, WIRE_WRITABLE_ALL};
        unit_fails(rootfs_build(&cfg, &r, &e), e, ERR_INVALID);
    }
    /* A link to an image, and an image that others can write to. */
    images_add(&im, "good", NULL, "");
    assert_int_equal(symlinkat("good", im.fd, "alias"), 0);
    struct rootfs_config alias = {"alias", im.fd, WIRE_WRITABLE_ALL};
    struct rootfs_config good = {"good", im.fd, WIRE_WRITABLE_ALL};
    struct rootfs r = {-1};
    unit_fails(rootfs_build(&alias, &r, &e), e, ERR_INVALID);
    assert_int_equal(fchmodat(im.fd, "good/rootfs", 0777, 0), 0);
    unit_fails(rootfs_build(&good, &r, &e), e, ERR_INVALID);
    images_remove(&im);
}

static int image_holds(void) {
    char text[256];
    CHECK(read_text("/etc/hosts", text, sizeof text) == 0, "hosts");
    CHECK(strstr(text, "::1 localhost") != NULL, "hosts says %s", text);
    CHECK(access("/usr", F_OK) != 0, "the host's /usr is there");
    CHECK(count_entries("/dev") == 13, "/dev has %d entries", count_entries("/dev"));
    errno = 0;
    CHECK(attempt_write("/workspace/x") != 0 && errno == EROFS, "the image is writable");
    CHECK(mount("tmpfs", "/workspace", "tmpfs", 0, NULL) == 0, "tmpfs");
    CHECK(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") == 0,
          "proc");
    CHECK(mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance") == 0,
          "devpts");
    CHECK(attempt_remount_root() != 0, "remount");
    return 0;
}

static void test_image(void **state) {
    (void)state;
    struct images im;
    struct err e;
    struct rootfs r = {-1};
    if (!is_root()) {
        skip();
    }
    images_make(&im);
    images_add(&im, "good", NULL, "");
    int fd = openat(im.fd, "good/rootfs/etc/hosts", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    fd_close(&fd);
    struct rootfs_config cfg = {"good", im.fd, WIRE_WRITABLE_ALL};
    unit_works(rootfs_build(&cfg, &r, &e), e);
    in_jail(&r, image_holds);
    rootfs_done(&r);
    /* A hosts file that is a link is left alone, wherever it leads. */
    assert_int_equal(unlinkat(im.fd, "good/rootfs/etc/hosts", 0), 0);
    assert_int_equal(symlinkat("/proc/self/exe", im.fd, "good/rootfs/etc/hosts"), 0);
    unit_works(rootfs_build(&cfg, &r, &e), e);
    rootfs_done(&r);
    /* What a policy does not make writable needs no mount point. */
    assert_int_equal(unlinkat(im.fd, "good/rootfs/home/user", AT_REMOVEDIR), 0);
    unit_fails(rootfs_build(&cfg, &r, &e), e, ERR_INVALID);
    cfg.writable = WIRE_WRITABLE_WORKSPACE;
    unit_works(rootfs_build(&cfg, &r, &e), e);
    rootfs_done(&r);
    images_remove(&im);
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
        struct rootfs_config absent = {"absent", AT_FDCWD, WIRE_WRITABLE_ALL};
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
        cmocka_unit_test(test_shape),         cmocka_unit_test(test_etc),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_setup),
        cmocka_unit_test(test_image_refused), cmocka_unit_test(test_image_names),
        cmocka_unit_test(test_image),         cmocka_unit_test(test_no_trace),
    };
    shared_text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared_text == MAP_FAILED) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

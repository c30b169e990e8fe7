/* The steps for an imported image, of which some are hostile. */
#include "rootfs_steps.h"

#include <stdlib.h>

#include "unit_template.h"
#include "wire.h"

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
        size_t len = bad == NULL ? 0 : strlen(bad);
        if (len > 0 && strncmp(dirs[i], bad, len) == 0 && dirs[i][len] == '/') {
            continue; /* what would be below the bad one: never through a link */
        }
        if (bad == NULL || strcmp(dirs[i], bad) != 0) {
            assert_int_equal(mkdirat(im->fd, path, 0755), 0);
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
        struct rootfs_config cfg = {cases[i].name, im.fd, WIRE_WRITABLE_ALL, false};
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
        struct rootfs_config cfg = {names[i], im.fd, WIRE_WRITABLE_ALL, false};
        unit_fails(rootfs_build(&cfg, &r, &e), e, ERR_INVALID);
    }
    /* A link to an image, and an image that others can write to. */
    images_add(&im, "good", NULL, "");
    assert_int_equal(symlinkat("good", im.fd, "alias"), 0);
    struct rootfs_config alias = {"alias", im.fd, WIRE_WRITABLE_ALL, false};
    struct rootfs_config good = {"good", im.fd, WIRE_WRITABLE_ALL, false};
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
    CHECK(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) != 0, "remount");
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
    struct rootfs_config cfg = {"good", im.fd, WIRE_WRITABLE_ALL, false};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_refused),
        cmocka_unit_test(test_image_names),
        cmocka_unit_test(test_image),
    };
    if (!template_init()) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

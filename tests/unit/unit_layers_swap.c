#include "layers_swap.h"

#include <stdlib.h>

#include "mnt.h"
#include "unit_template.h"

#define SWAPS 3

static const char *const swap_paths[SWAPS] = {"a", "dir/b", "c"};

/* A detached tmpfs with a file of this name in it. */
static int swap_tree(const char *name) {
    static const struct mnt_option options[] = {{"source", "test"}, {NULL, NULL}};
    struct mnt_fs fs = {-1, -1};
    if (mnt_fs_new("tmpfs", options, MOUNT_ATTR_NOSUID, &fs, NULL) != 0) {
        return -1;
    }
    int fd = openat(fs.mount, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    fd_close(&fd);
    fd_close(&fs.context);
    return fs.mount;
}

static int swap_has(const char *file) {
    for (size_t i = 0; i < SWAPS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/%s/%s", swap_paths[i], file);
        CHECK(access(path, F_OK) == 0, "%s", path);
        (void)snprintf(path, sizeof path, "/%s", swap_paths[i]);
        CHECK(count_entries(path) == 1, "%s", path);
    }
    return 0;
}

/* A root with three mounts that hold "old", and three more with "new" to take their places. */
static int swap_world(struct layers_swap *swap) {
    static const char *const dirs[] = {"a", "dir", "dir/b", "c", "park"};
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0,
          "namespace");
    CHECK(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 && chdir("/tmp") == 0, "root");
    for (size_t i = 0; i < UNIT_COUNT(dirs); i++) {
        CHECK(mkdir(dirs[i], 0755) == 0, "%s", dirs[i]);
    }
    CHECK(chroot(".") == 0 && chdir("/") == 0, "chroot");
    for (size_t i = 0; i < SWAPS; i++) {
        int tree = swap_tree("old");
        int place = open(swap_paths[i], O_PATH | O_CLOEXEC);
        CHECK(tree >= 0 && place >= 0 && mnt_attach(tree, place, NULL) == 0, "%s", swap_paths[i]);
        fd_close(&tree);
        fd_close(&place);
        swap[i] = (struct layers_swap){.path = swap_paths[i], .tree = swap_tree("new"), .back = -1};
        CHECK(swap[i].tree >= 0, "a new mount");
    }
    return swap_has("old");
}

/* With a place to park, and without one: as on a kernel that puts no mount beneath another. */
static bool swap_without_park;

static int swap_park(void) {
    return swap_without_park ? -1 : open("/park", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* How often is something mounted there? */
static int swap_mounts(const char *path) {
    int n = 0;
    while (umount2(path, MNT_DETACH) == 0) {
        n++;
    }
    return n;
}

static int swap_all_change_places(void) {
    struct layers_swap swap[SWAPS];
    struct err e = {0};
    CHECK(swap_world(swap) == 0, "%s", "world");
    CHECK(layers_swap_busy(swap, SWAPS, &e) == 0, "%s", e.text);
    CHECK(layers_swap_busy(swap, SWAPS, &e) == 0, "a probe removes nothing: %s", e.text);
    CHECK(swap_has("old") == 0, "%s", "old");
    CHECK(layers_swap_all(swap, SWAPS, false, swap_park(), &e) == LAYERS_SWAP_DONE, "%s", e.text);
    layers_swap_done(swap, SWAPS);
    CHECK(swap_has("new") == 0, "%s", "new");
    for (size_t i = 0; i < SWAPS; i++) {
        CHECK(swap_mounts(swap_paths[i]) == 1, "%s", swap_paths[i]);
    }
    return 0;
}

static int swap_busy_one(size_t busy) {
    struct layers_swap swap[SWAPS];
    struct err e = {0};
    char path[64];
    CHECK(swap_world(swap) == 0, "%s", "world");
    (void)snprintf(path, sizeof path, "/%s/old", swap_paths[busy]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && layers_swap_busy(swap, SWAPS, &e) == 1, "%s", e.text);
    CHECK(layers_swap_all(swap, SWAPS, false, swap_park(), &e) == LAYERS_SWAP_BUSY, "%s", e.text);
    layers_swap_done(swap, SWAPS);
    CHECK(swap_has("old") == 0, "%s", "old");
    /* It is the same mount still: who has something open keeps it busy, and nobody else does. */
    CHECK(layers_swap_busy(swap, SWAPS, &e) == 1, "%s", e.text);
    fd_close(&fd);
    CHECK(layers_swap_busy(swap, SWAPS, &e) == 0, "%s", e.text);
    CHECK(swap_mounts("/park") == 0, "parked");
    for (size_t i = 0; i < SWAPS; i++) {
        CHECK(swap_mounts(swap_paths[i]) == 1, "%s", swap_paths[i]);
    }
    return 0;
}

static int swap_first_is_busy(void) {
    return swap_busy_one(0);
}

static int swap_last_is_busy(void) {
    return swap_busy_one(SWAPS - 1);
}

static int swap_by_force(void) {
    struct layers_swap swap[SWAPS];
    struct err e = {0};
    CHECK(swap_world(swap) == 0, "%s", "world");
    int fd = open("/dir/b/old", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "open");
    CHECK(layers_swap_all(swap, SWAPS, true, swap_park(), &e) == LAYERS_SWAP_DONE, "%s", e.text);
    layers_swap_done(swap, SWAPS);
    CHECK(swap_has("new") == 0 && write(fd, "x", 1) == 1, "%s", "what is open stays open");
    CHECK(layers_swap_busy(swap, SWAPS, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < SWAPS; i++) {
        CHECK(swap_mounts(swap_paths[i]) == 1, "%s", swap_paths[i]);
    }
    return 0;
}

static int swap_missing_place(void) {
    struct layers_swap swap[SWAPS];
    struct err e = {0};
    CHECK(swap_world(swap) == 0, "%s", "world");
    swap[2].path = "none";
    CHECK(layers_swap_busy(swap, SWAPS, &e) == -1, "%s", "none");
    CHECK(layers_swap_all(swap, SWAPS, true, swap_park(), &e) == LAYERS_SWAP_FAILED, "%s", e.text);
    layers_swap_done(swap, SWAPS);
    return swap_has("old");
}

static void swap_in_child(int (*fn)(void)) {
    if (!is_root()) {
        skip();
    }
    for (int plain = 0; plain < 2; plain++) {
        shared_text[0] = '\0';
        pid_t pid = fork();
        if (pid == 0) {
            swap_without_park = plain != 0;
            _exit(fn());
        }
        wait_for(pid);
    }
}

static void test_all_change_places(void **state) {
    (void)state;
    swap_in_child(swap_all_change_places);
}

static void test_nothing_changes_when_the_first_is_busy(void **state) {
    (void)state;
    swap_in_child(swap_first_is_busy);
}

static void test_nothing_changes_when_the_last_is_busy(void **state) {
    (void)state;
    swap_in_child(swap_last_is_busy);
}

static void test_force_leaves_open_what_is_open(void **state) {
    (void)state;
    swap_in_child(swap_by_force);
}

static void test_a_place_that_is_not_there(void **state) {
    (void)state;
    swap_in_child(swap_missing_place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_change_places),
        cmocka_unit_test(test_nothing_changes_when_the_first_is_busy),
        cmocka_unit_test(test_nothing_changes_when_the_last_is_busy),
        cmocka_unit_test(test_force_leaves_open_what_is_open),
        cmocka_unit_test(test_a_place_that_is_not_there),
    };
    if (!template_init()) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

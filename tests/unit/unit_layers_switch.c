/* Random programs write, move and remove; snapshots are taken of them in either way, dropped and
 * gone back to, also by others. What is found must be what was there. */
#include "layers_worker.h"

#include <ftw.h>
#include <stdlib.h>

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

#define RANDOM_KEPT 12
#define RANDOM_ROUNDS 120
#define RANDOM_STEPS 25

static uint64_t random_next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A path of at most four levels out of a few names: collisions are wanted. */
static void random_path(uint64_t *seed, char *path, size_t size) {
    size_t at =
        (size_t)snprintf(path, size, "%s", random_next(seed) % 8 ? "/workspace" : "/home/user");
    for (uint64_t n = 1 + random_next(seed) % 4; n > 0; n--) {
        at += (size_t)snprintf(path + at, size - at, "/%c", (char)('a' + random_next(seed) % 4));
    }
}

static int random_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void random_write(uint64_t *seed, const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    uint64_t value = random_next(seed);
    if (fd >= 0) {
        (void)!pwrite(fd, &value, sizeof value, (off_t)(random_next(seed) % 9000));
        (void)!ftruncate(fd, (off_t)(random_next(seed) % 9000));
    }
    fd_close(&fd);
}

/* Most of these fail, as often as not: that is a program's life. */
static int random_program(const char *arg) {
    uint64_t seed = strtoull(arg, NULL, 10);
    for (int i = 0; i < RANDOM_STEPS; i++) {
        char one[128], two[128];
        random_path(&seed, one, sizeof one);
        random_path(&seed, two, sizeof two);
        switch (random_next(&seed) % 10) {
        case 0:
        case 1:
            random_write(&seed, one);
            break;
        case 2:
        case 3:
            (void)mkdir(one, 0700 | (mode_t)(random_next(&seed) % 64));
            break;
        case 4:
        case 5:
            (void)!rename(one, two);
            break;
        case 6:
            (void)!link(one, two);
            break;
        case 7:
            (void)!symlink(two, one);
            break;
        case 8:
            (void)!chmod(one, 0700 | (mode_t)(random_next(&seed) % 64));
            break;
        default:
            (void)nftw(one, random_remove, 8, FTW_DEPTH | FTW_PHYS);
            break;
        }
    }
    return 0;
}

/* ---- what is there, as one number ---- */

static uint64_t *random_sum(void) {
    return (uint64_t *)(void *)(shared_text + 3600);
}

static uint64_t random_mix(uint64_t sum, const void *data, size_t len) {
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        sum = (sum ^ p[i]) * 1099511628211u;
    }
    return sum;
}

/* Directories are read in no order: the sums of entries are added. */
static int random_look(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    char data[9000] = "";
    ssize_t n = 0;
    uint64_t sum = random_mix(14695981039346656037u, path, strlen(path));
    (void)flag;
    (void)ftw;
    sum = random_mix(sum, &st->st_mode, sizeof st->st_mode);
    if (st->st_uid != 1000) {
        return 1;
    }
    if (S_ISREG(st->st_mode)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, data, sizeof data);
        fd_close(&fd);
    } else if (S_ISLNK(st->st_mode)) {
        n = readlink(path, data, sizeof data);
    }
    if (!S_ISDIR(st->st_mode)) {
        sum = random_mix(sum, &st->st_mtim.tv_nsec, sizeof st->st_mtim.tv_nsec);
    }
    *random_sum() += n < 0 ? 1 : random_mix(sum, data, (size_t)n);
    return n < 0;
}

static int random_state(const char *arg) {
    (void)arg;
    *random_sum() = 0;
    CHECK(nftw("/workspace", random_look, 16, FTW_PHYS) == 0, "look");
    CHECK(nftw("/home/user", random_look, 16, FTW_PHYS) == 0, "look");
    return 0;
}

static uint64_t random_state_of(struct test_jail *j) {
    test_in(j, random_state, "");
    return *random_sum();
}

/* ---- the game ---- */

struct random_kept {
    char key[32]; /* "" = none */
    uint64_t state;
};

static void random_keep(struct test_layers *t, struct test_jail *j, struct random_kept *k,
                        uint64_t *seed, int round) {
    if (*k->key != '\0') {
        layers_drop(t->layers, k->key);
    }
    (void)snprintf(k->key, sizeof k->key, "g%d", round);
    k->state = random_state_of(j);
    test_works(test_snapshot(t, j, k->key, random_next(seed) % 3 != 0), t);
    assert_true(random_state_of(j) == k->state);
}

static void random_game(struct test_layers *t, uint64_t seed, enum wire_disk disk) {
    struct random_kept kept[RANDOM_KEPT] = {0};
    struct test_jail j, other;
    test_jail_open(t, &j, 256 * JAIL_MIB, 20000);
    test_works(test_prepare(t, &j, disk, ""), t);
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        char arg[32];
        struct random_kept *k = &kept[random_next(&seed) % RANDOM_KEPT];
        uint64_t what = random_next(&seed) % 10;
        (void)snprintf(arg, sizeof arg, "%llu", (unsigned long long)random_next(&seed));
        test_in(&j, random_program, arg);
        if (what < 6 || *k->key == '\0') {
            random_keep(t, &j, k, &seed, round);
        } else if (what < 8) {
            test_works(test_restore(t, &j, k->key), t);
            if (random_state_of(&j) != k->state) {
                fail_msg("round %d: another state than %s", round, k->key);
            }
        } else {
            /* The one goes, the other goes on from a snapshot of it. */
            test_jail_open(t, &other, 256 * JAIL_MIB, 20000);
            test_works(test_prepare(t, &other, disk, k->key), t);
            assert_true(random_state_of(&other) == k->state);
            test_jail_close(&j);
            j = other;
        }
    }
    for (size_t i = 0; i < RANDOM_KEPT; i++) {
        if (*kept[i].key != '\0') {
            test_works(test_restore(t, &j, kept[i].key), t);
            assert_true(random_state_of(&j) == kept[i].state);
            layers_drop(t->layers, kept[i].key);
        }
    }
    test_jail_close(&j);
    test_settle(t);
    assert_null(t->layers->fs);
}

static void test_random_programs_in_memory(void **state) {
    struct test_layers *t = *state;
    const char *from = getenv("UNIT_LAYERS_SEED"); /* to look for more */
    uint64_t seed = from == NULL ? 1 : strtoull(from, NULL, 10);
    if (t == NULL) {
        skip();
    }
    random_game(t, seed, WIRE_DISK_MEMORY);
}

static void test_random_programs_in_a_file(void **state) {
    struct test_layers *t = *state;
    if (t == NULL) {
        skip();
    }
    random_game(t, 2, WIRE_DISK_FILE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_in_memory),
        cmocka_unit_test(test_random_programs_in_a_file),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}

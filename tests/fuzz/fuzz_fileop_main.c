/* Streams of records as operations take them that change files: whatever comes, nothing outside of
 * their directory is touched, links are not written through, and an apply that fails has changed
 * nothing. The first byte chooses the operation. */
#include "fileop_op.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_write(int dir, const char *name, const char *text) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    fuzz_require(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void fuzz_holds(int dir, const char *name, const char *text) {
    char got[32] = "";
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW);
    fuzz_require(fd >= 0 && read(fd, got, sizeof(got) - 1) == (ssize_t)strlen(text));
    fuzz_require(strcmp(got, text) == 0 && fstat(fd, &st) == 0);
    fuzz_require((st.st_mode & 07777) == 0640 && st.st_nlink == 1);
    close(fd);
}

static int fuzz_count(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int n = 0;
    fuzz_require(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

/* outside/secret, work/{a,d/b,l -> ../outside} */
static void fuzz_plant(int top) {
    fuzz_require(mkdirat(top, "outside", 0750) == 0 && mkdirat(top, "work", 0755) == 0);
    fuzz_require(mkdirat(top, "work/d", 0755) == 0);
    fuzz_write(top, "outside/secret", "secret");
    fuzz_write(top, "work/a", "old a");
    fuzz_write(top, "work/d/b", "old b");
    fuzz_require(symlinkat("../outside", top, "work/l") == 0);
}

static void fuzz_outside_is_as_it_was(int top) {
    struct stat st;
    fuzz_holds(top, "outside/secret", "secret");
    fuzz_require(fuzz_count(top, "outside") == 1);
    fuzz_require(fstatat(top, "outside", &st, AT_SYMLINK_NOFOLLOW) == 0);
    fuzz_require((st.st_mode & 07777) == 0750);
    fuzz_require(fuzz_count(top, ".") == 2);
}

static void fuzz_inside_is_as_it_was(int top) {
    char target[32] = "";
    fuzz_require(fuzz_count(top, "work") == 3 && fuzz_count(top, "work/d") == 1);
    fuzz_holds(top, "work/a", "old a");
    fuzz_holds(top, "work/d/b", "old b");
    fuzz_require(readlinkat(top, "work/l", target, sizeof(target) - 1) == 10);
    fuzz_require(strcmp(target, "../outside") == 0);
}

static int fuzz_run(struct fileop_op *o, unsigned choice, const char *work, const char *file) {
    static char none[] = "-1", no[] = "0";
    char *argv[] = {NULL, (char *)work, none, no, NULL};
    o->argv = argv;
    switch (choice % 5) {
    case 0:
        return fileop_unpack(o);
    case 1:
        return fileop_look(o);
    case 2:
        return fileop_fetch(o);
    case 3:
        argv[1] = (char *)file;
        return fileop_write(o);
    default:
        return fileop_apply(o);
    }
}

/* Whatever was made can be told. */
static void fuzz_tell(struct fileop_op *o, const char *work) {
    static char depth[] = "9", limit[] = "3", after[] = "d";
    char *argv[] = {NULL, (char *)work, depth, limit, after, NULL};
    o->argv = argv;
    fuzz_require(fileop_scan(o) == 0);
    fuzz_require(fileop_pack(o) == 0);
    fuzz_require(fileop_list(o) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char top_path[] = "/dev/shm/pinfold-fuzz-XXXXXX"; /* in memory: many times faster */
    char work[64], file[64];
    if (size < 1)
        return 0;
    struct fileop_op *o = calloc(1, sizeof(*o));
    fuzz_require(o != NULL && mkdtemp(top_path) != NULL);
    snprintf(work, sizeof(work), "%s/work", top_path);
    snprintf(file, sizeof(file), "%s/work/a", top_path);
    int top = open(top_path, O_RDONLY | O_DIRECTORY);
    fuzz_require(top >= 0);
    o->upper = -1;
    o->io.in = memfd_create("in", 0);
    o->io.out = open("/dev/null", O_WRONLY);
    fuzz_require(o->io.in >= 0 && o->io.out >= 0);
    fuzz_require(write(o->io.in, data + 1, size - 1) == (ssize_t)(size - 1));
    fuzz_require(lseek(o->io.in, 0, SEEK_SET) == 0);
    umask(0);
    fuzz_plant(top);
    int rc = fuzz_run(o, data[0], work, file);
    fuzz_outside_is_as_it_was(top);
    if (data[0] % 5 != 0 && rc != 0)
        fuzz_inside_is_as_it_was(top);
    fuzz_tell(o, work);
    close(o->io.in);
    close(o->io.out);
    close(top);
    free(o);
    fuzz_require(fileop_remove_tree(AT_FDCWD, top_path) == 0);
    return 0;
}

#include "results.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "store_file.h"

#define RESULTS_TEMP ".new-"

int results_open(int server, struct err *err) {
    if (mkdirat(server, RESULTS_DIR, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "making the directory of results");
    int fd = openat(server, RESULTS_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : err_sys(err, "opening the directory of results");
}

void results_hash(const void *data, size_t len, uint8_t hash[STORE_RUNS_HASH_SIZE]) {
    crypto_generichash(hash, STORE_RUNS_HASH_SIZE, data, len, NULL, 0);
}

void results_name(const uint8_t hash[STORE_RUNS_HASH_SIZE], char name[STORE_RUNS_FILE_SIZE]) {
    store_file_hex(hash, STORE_RUNS_HASH_SIZE, name);
}

static int results_fill(int dir, const char *temp, const void *data, size_t len, struct err *err) {
    fd_cleanup int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "making a file for a result");
    if (fd_write_all(fd, data, len, err) < 0)
        return -1;
    /* The row that names it may be on the disk sooner than a rename without this. */
    if (fdatasync(fd) < 0)
        return err_sys(err, "writing a result");
    return 0;
}

int results_write(int dir, const char *name, const void *data, size_t len, struct err *err) {
    char temp[STORE_RUNS_FILE_SIZE + 32];
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size == len)
        return 0;
    /* Several workers may write the same content at once. */
    snprintf(temp, sizeof(temp), RESULTS_TEMP "%.16s-%d", name, (int)gettid());
    (void)unlinkat(dir, temp, 0);
    if (results_fill(dir, temp, data, len, err) < 0) {
        int saved = errno;
        (void)unlinkat(dir, temp, 0);
        errno = saved;
        return -1;
    }
    if (renameat(dir, temp, dir, name) < 0)
        return err_sys(err, "naming a result");
    return 0;
}

bool results_hide(int dir, const char *name, char hidden[STORE_RUNS_FILE_SIZE]) {
    snprintf(hidden, STORE_RUNS_FILE_SIZE, RESULTS_TEMP "gone-%.32s", name);
    return renameat(dir, name, dir, hidden) == 0;
}

int results_read(int dir, const char *name, struct buf *out, struct err *err) {
    uint8_t hash[STORE_RUNS_HASH_SIZE];
    char real[STORE_RUNS_FILE_SIZE];
    size_t before = out->len;
    if (fd_read_file(dir, name, out, err) < 0)
        return -1;
    results_hash(out->data != NULL ? out->data + before : "", out->len - before, hash);
    results_name(hash, real);
    if (strcmp(real, name) == 0)
        return 0;
    out->len = before;
    return err_set(err, ERR_INVALID, 0, "the stored result %s is damaged", name);
}

int results_walk_start(int dir, struct results_walk *w, struct err *err) {
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->stream = copy >= 0 ? fdopendir(copy) : NULL;
    if (w->stream != NULL)
        return 0;
    fd_close(&copy);
    return err_sys(err, "listing the directory of results");
}

bool results_walk_next(struct results_walk *w, int dir, char name[STORE_RUNS_FILE_SIZE]) {
    const struct dirent *e;
    while ((e = readdir(w->stream)) != NULL) {
        if (strncmp(e->d_name, RESULTS_TEMP, strlen(RESULTS_TEMP)) == 0)
            (void)unlinkat(dir, e->d_name, 0);
        if (strlen(e->d_name) != STORE_RUNS_FILE_SIZE - 1 || e->d_name[0] == '.')
            continue;
        memcpy(name, e->d_name, STORE_RUNS_FILE_SIZE);
        return true;
    }
    return false;
}

void results_walk_stop(struct results_walk *w) {
    if (w->stream != NULL)
        closedir(w->stream);
    w->stream = NULL;
}

/* What the user of a test's jail does (unit_layers_jail.h): each function runs there. */
#pragma once

#include "unit_layers_jail.h"

static inline int put_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "%s", path);
    CHECK(write(fd, path, strlen(path)) == (ssize_t)strlen(path), "%s", path);
    fd_close(&fd);
    return 0;
}

static inline int has_file(const char *path) {
    char text[300];
    CHECK(read_text(path, text, sizeof text) == 0, "%s", path);
    CHECK(strcmp(text, path) == 0, "%s: %s", path, text);
    return 0;
}

static inline int lacks_file(const char *path) {
    struct stat st;
    CHECK(lstat(path, &st) != 0 && errno == ENOENT, "%s", path);
    return 0;
}

static inline int gone_file(const char *path) {
    CHECK(unlink(path) == 0, "%s", path);
    return 0;
}

/* Writes until there is no room. */
static inline int fill_disk(const char *path) {
    static const char block[65536] = {1};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "%s", path);
    while (write(fd, block, sizeof block) > 0) {
    }
    CHECK(errno == ENOSPC, "%s", path);
    fd_close(&fd);
    return 0;
}

/* Makes files "0", "1", … until there is no room: at least as many as the last component says. */
static inline int fill_inodes(const char *path) {
    const char *slash = strrchr(path, '/');
    long want = strtol(slash + 1, NULL, 10);
    long n = 0;
    for (;; n++) {
        char name[300];
        (void)snprintf(name, sizeof name, "%.*s/i%ld", (int)(slash - path), path, n);
        int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            break;
        }
        fd_close(&fd);
    }
    CHECK(errno == ENOSPC && n >= want, "%ld of %ld", n, want);
    return 0;
}

#define FILES_BIG (8u << 20)

static inline int make_big(const char *path) {
    static char block[FILES_BIG];
    memset(block, 'b', sizeof block);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, block, sizeof block) == (ssize_t)sizeof block, "%s", path);
    fd_close(&fd);
    return 0;
}

/* Changes one byte of it and gives it its old times back. */
static inline int sneak(const char *path) {
    struct stat st;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && pwrite(fd, "s", 1, 4000000) == 1, "%s", path);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    CHECK(futimens(fd, times) == 0, "%s", path);
    fd_close(&fd);
    return 0;
}

static inline int is_sneaked(const char *path) {
    char byte = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, 4000000) == 1 && byte == 's', "%s: %c", path, byte);
    fd_close(&fd);
    return 0;
}

static inline int make_tree(const char *path) {
    char name[300];
    CHECK(mkdir(path, 0755) == 0, "%s", path);
    (void)snprintf(name, sizeof name, "%s/sub", path);
    CHECK(mkdir(name, 0755) == 0, "%s", name);
    for (const char *p = "xy"; *p != '\0'; p++) {
        (void)snprintf(name, sizeof name, "%s/sub/%c", path, *p);
        CHECK(put_file(name) == 0, "%s", name);
    }
    return 0;
}

static inline int is_tree(const char *path) {
    char name[300];
    for (const char *p = "xy"; *p != '\0'; p++) {
        (void)snprintf(name, sizeof name, "%s/sub/%c", path, *p);
        CHECK(has_file(name) == 0, "%s", name);
    }
    return 0;
}

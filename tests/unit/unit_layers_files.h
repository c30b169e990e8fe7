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

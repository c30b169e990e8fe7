/* What harnesses have in common: a truth that must hold, and files to read from. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(int truth) {
    if (!truth)
        abort();
}

/* A copy with a NUL behind it, to be freed; a NUL within ends it for who takes it as text. */
static inline char *fuzz_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    fuzz_require(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The next part of the input: up to the next byte 0xff, which no UTF-8 has. */
static inline const uint8_t *fuzz_part(const uint8_t **data, size_t *size, size_t *len) {
    const uint8_t *part = *data, *end = *size > 0 ? memchr(part, 0xff, *size) : NULL;
    *len = end != NULL ? (size_t)(end - part) : *size;
    *data = end != NULL ? end + 1 : part + *size;
    *size -= end != NULL ? *len + 1 : *size;
    return part;
}

/* A directory in memory, which is many times faster; `path` becomes its name. */
#define FUZZ_DIR "/dev/shm/pinfold-fuzz-XXXXXX"
static inline int fuzz_dir(char path[sizeof(FUZZ_DIR)]) {
    memcpy(path, FUZZ_DIR, sizeof(FUZZ_DIR));
    fuzz_require(mkdtemp(path) != NULL);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fuzz_require(dir >= 0);
    return dir;
}

static inline void fuzz_file(int dir, const char *name, const void *data, size_t size) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

/* Empties and closes `dir`; -1 is allowed. */
static inline void fuzz_empty(int dir) {
    DIR *d = dir >= 0 ? fdopendir(dir) : NULL;
    if (d == NULL)
        return;
    rewinddir(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dir, e->d_name, 0) < 0) {
            fuzz_empty(openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
            unlinkat(dir, e->d_name, AT_REMOVEDIR);
        }
    }
    closedir(d);
}

static inline void fuzz_remove(int dir, const char *path) {
    fuzz_empty(dir);
    rmdir(path);
}

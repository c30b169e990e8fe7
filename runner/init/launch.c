#include "launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "str.h"
#include "wire.h"

char *launch_map(int fd, size_t size) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return NULL;
    }
    if (size == 0 || st.st_size < 0 || (size_t)st.st_size < size) {
        errno = EPROTO; /* touching a page beyond the end would be SIGBUS */
        return NULL;
    }
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* "#! /path arg" -> "/path" in out[size]. */
static bool launch_shebang(const char *head, size_t len, char *out, size_t size) {
    if (len < 3 || head[0] != '#' || head[1] != '!') {
        return false;
    }
    size_t i = 2;
    while (i < len && (head[i] == ' ' || head[i] == '\t')) {
        i++;
    }
    size_t n = 0;
    while (i < len && n + 1 < size && head[i] != ' ' && head[i] != '\t' && head[i] != '\n') {
        out[n++] = head[i++];
    }
    out[n] = '\0';
    return n > 0;
}

/* The loader that an ELF file asks for (PT_INTERP). */
static bool launch_loader(int fd, const char *head, size_t len, char *out, size_t size) {
    Elf64_Ehdr eh;
    if (len < sizeof eh) {
        return false;
    }
    memcpy(&eh, head, sizeof eh);
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_phentsize != sizeof(Elf64_Phdr)) {
        return false;
    }
    for (unsigned i = 0; i < eh.e_phnum && i < 64; i++) {
        Elf64_Phdr ph;
        off_t at = (off_t)(eh.e_phoff + i * sizeof ph);
        if (pread(fd, &ph, sizeof ph, at) != (ssize_t)sizeof ph) {
            return false;
        }
        if (ph.p_type == PT_INTERP && ph.p_filesz > 1) {
            size_t want = ph.p_filesz < size ? ph.p_filesz : size - 1;
            ssize_t n = pread(fd, out, want, (off_t)ph.p_offset);
            if (n <= 0) {
                return false;
            }
            out[n] = '\0';
            return true;
        }
    }
    return false;
}

/* ENOENT for a file that is there means: its interpreter is not. Names that one instead. */
static void launch_blame(const char *file, char *path, size_t size) {
    char head[256];
    char interp[WIRE_TEXT_MAX];
    if (!str_copy(path, size, file)) {
        (void)str_copy(path, size, "(a very long path)");
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    ssize_t n = read(fd, head, sizeof head);
    if (n > 0 && (launch_shebang(head, (size_t)n, interp, sizeof interp) ||
                  launch_loader(fd, head, (size_t)n, interp, sizeof interp))) {
        (void)str_copy(path, size, interp);
    }
    (void)close(fd);
}

static void launch_file(const char *file, struct spec *spec, char *path, size_t size) {
    (void)execve(file, spec->argv, spec->env);
    int code = errno;
    if (code == ENOENT) {
        launch_blame(file, path, size);
    } else if (!str_copy(path, size, file)) {
        (void)str_copy(path, size, "(a very long path)");
    }
    errno = code;
}

/* As a shell looks a command up: the first directory that has it; a file that may not be executed
 * is remembered and reported when no other is found. */
static void launch_search(struct spec *spec, char *path, size_t size) {
    const char *name = spec->argv[0];
    const char *dirs = spec_getenv(spec, "PATH");
    char file[4096];
    char denied[WIRE_TEXT_MAX] = "";
    int denied_code = 0;
    while (dirs != NULL && *dirs != '\0') {
        size_t n = strcspn(dirs, ":");
        size_t name_len = strlen(name);
        if (n > 0 && n + name_len + 2 <= sizeof file) {
            memcpy(file, dirs, n);
            file[n] = '/';
            memcpy(file + n + 1, name, name_len + 1);
            (void)execve(file, spec->argv, spec->env);
            if (errno != ENOENT && errno != ENOTDIR) {
                if (denied_code == 0) {
                    denied_code = errno;
                    (void)str_copy(denied, sizeof denied, file);
                }
            } else if (access(file, F_OK) == 0) {
                launch_blame(file, path, size); /* found, but its interpreter is missing */
                errno = ENOENT;
                return;
            }
        }
        dirs += n + (dirs[n] == ':' ? 1 : 0);
    }
    if (!str_copy(path, size, denied_code ? denied : name)) {
        (void)str_copy(path, size, "(a very long name)");
    }
    errno = denied_code ? denied_code : ENOENT;
}

void launch_exec(struct spec *spec, bool shell, char *path, size_t size) {
    if (shell) {
        char bash[] = "/bin/bash";
        char sh[] = "/bin/sh";
        spec_shell(spec, access(bash, X_OK) == 0 ? bash : sh);
        launch_file(spec->argv[0], spec, path, size);
        return;
    }
    if (spec->argv[0][0] == '\0' || strchr(spec->argv[0], '/') != NULL) {
        launch_file(spec->argv[0], spec, path, size);
        return;
    }
    launch_search(spec, path, size);
}

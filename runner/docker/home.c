#include "home.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "fd.h"
#include "str.h"

#define HOME_OWNER_FILE "docker.owner"
#define HOME_OWNER_BYTES ((HOME_OWNER_SIZE - 1) / 2)

/* "NAME OWNER\n" -> is it of this directory, and whole? */
static bool home_read(const char *text, const char *name, char out[HOME_OWNER_SIZE]) {
    size_t len = strlen(name);
    if (strncmp(text, name, len) != 0 || text[len] != ' ' ||
        strspn(text + len + 1, "0123456789abcdef") != HOME_OWNER_SIZE - 1 ||
        text[len + HOME_OWNER_SIZE] != '\n') {
        return false;
    }
    memcpy(out, text + len + 1, HOME_OWNER_SIZE - 1);
    out[HOME_OWNER_SIZE - 1] = '\0';
    return true;
}

int home_owner(const char *run_dir, const char *name, char out[HOME_OWNER_SIZE], struct err *err) {
    unsigned char bytes[HOME_OWNER_BYTES];
    char path[4300];
    char line[256];
    struct buf text;
    struct err why;
    if (sodium_init() < 0) {
        return err_set(err, ERR_SYSTEM, EIO, "preparing random numbers");
    }
    (void)snprintf(path, sizeof path, "%s/" HOME_OWNER_FILE, run_dir);
    buf_init(&text, sizeof line);
    bool there = fd_read_file(AT_FDCWD, path, &text, &why) == 0;
    bool known = there && text.len > 0 && home_read(text.data, name, out);
    buf_done(&text);
    if (known) {
        return 0;
    }
    if (!there && why.code != ENOENT) {
        *err = why;
        return -1;
    }
    randombytes_buf(bytes, sizeof bytes);
    (void)sodium_bin2hex(out, HOME_OWNER_SIZE, bytes, sizeof bytes);
    int n = snprintf(line, sizeof line, "%s %s\n", name, out);
    return fd_write_atomic(AT_FDCWD, path, line, (size_t)n, 0600, err);
}

#include "store_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "json_memory.h"

#define STORE_FILE_DEPTH 16
#define STORE_FILE_ENTRIES 2048 /* bytes, on the stack for each level */

json_t *store_file_read(int dir, const char *name, size_t max, struct err *err) {
    struct buf b;
    json_t *root = NULL;
    buf_init(&b, max);
    if (fd_read_file(dir, name, &b, err) == 0) {
        root = json_memory_load(b.data != NULL ? b.data : "", b.len, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(root)) {
            json_decref(root);
            root = NULL;
            err_set(err, ERR_INVALID, 0, "%s is not what was written", name);
        }
    }
    buf_done(&b);
    return root;
}

/* Without opendir(): what is to go goes also when memory is short. */
static void store_file_empty_below(int dir, const char *keep, int depth) {
    union {
        struct dirent64 entry; /* for its alignment */
        char bytes[STORE_FILE_ENTRIES];
    } list;
    ssize_t n;
    if (lseek(dir, 0, SEEK_SET) < 0)
        return;
    while ((n = getdents64(dir, list.bytes, sizeof(list.bytes))) > 0) {
        const struct dirent64 *e;
        for (ssize_t at = 0; at < n; at += e->d_reclen) {
            e = (const struct dirent64 *)(const void *)(list.bytes + at);
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                (keep != NULL && strcmp(e->d_name, keep) == 0))
                continue;
            if (unlinkat(dir, e->d_name, 0) == 0 || (errno != EISDIR && errno != EPERM) ||
                depth == 0)
                continue;
            fd_cleanup int sub =
                openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (sub < 0)
                continue;
            store_file_empty_below(sub, NULL, depth - 1);
            (void)unlinkat(dir, e->d_name, AT_REMOVEDIR);
        }
    }
}

void store_file_empty(int dir, const char *keep) {
    store_file_empty_below(dir, keep, STORE_FILE_DEPTH);
}

void store_file_hex(const uint8_t *bytes, size_t len, char *out) {
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

int store_file_unhex(const char *text, uint8_t *out, size_t len) {
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * len)
        return -1;
    for (size_t i = 0; i < len; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
        if (high == NULL || low == NULL)
            return -1;
        out[i] = (uint8_t)((high - digits) * 16 + (low - digits));
    }
    return 0;
}

/* Sandboxes of a server that kept them as files, STATE/server/sandboxes/ID/sandbox.json: their rows
 * are made of them, once. A file goes when its row is there for good, so that one who dies in
 * between begins anew. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "id.h"
#include "json_memory.h"
#include "sandbox_internal.h"
#include "store_file.h"
#include "store_sandboxes.h"

#define SANDBOX_IMPORT_FILE "sandbox.json"
#define SANDBOX_IMPORT_MAX ((size_t)64 * 1024 * 1024)
#define SANDBOX_IMPORT_PATH_MAX (SANDBOX_ID_SIZE + sizeof("/" SANDBOX_IMPORT_FILE))

static bool sandbox_import_path(const char *id, char path[SANDBOX_IMPORT_PATH_MAX]) {
    int n = snprintf(path, SANDBOX_IMPORT_PATH_MAX, "%s/" SANDBOX_IMPORT_FILE, id);
    return id_is(id, "sb_") && n > 0 && (size_t)n < SANDBOX_IMPORT_PATH_MAX;
}

/* 1: it has a row now; 0: it is of no use. */
static int sandbox_import_one(struct sandboxes *s, int at, const char *id, const char *path,
                              struct err *err) {
    struct err bad;
    err_clear(&bad);
    int rc = store_sandboxes_has(s->store, id, err);
    if (rc != 0)
        return rc;
    json_t *root = store_file_read(at, path, SANDBOX_IMPORT_MAX, &bad);
    struct sandbox *sb = root != NULL ? sandbox_store_decode(s, id, root, &bad) : NULL;
    char *text = sb != NULL ? json_memory_dump(root, JSON_COMPACT) : NULL;
    if (text != NULL) {
        struct store_sandbox row = {.id = id,
                                    .user = sb->owner,
                                    .gone = sb->state == SANDBOX_GONE,
                                    .created_ms = sb->created_ms,
                                    .record = text,
                                    .record_len = strlen(text)};
        rc = store_sandboxes_put(s->store, &row, err) < 0 ? -1 : 1;
    } else {
        log_err(s->log, LOG_WARN, "sandbox_unreadable", &bad);
    }
    free(text);
    json_decref(root);
    sandbox_free(sb);
    return rc;
}

static int sandbox_import_each(struct sandboxes *s, DIR *dir, bool remove, struct err *err) {
    char path[SANDBOX_IMPORT_PATH_MAX];
    const struct dirent *e;
    int n = 0, rc = 0;
    rewinddir(dir);
    while (rc >= 0 && (e = readdir(dir)) != NULL) {
        if (!sandbox_import_path(e->d_name, path) ||
            faccessat(dirfd(dir), path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (remove)
            (void)unlinkat(dirfd(dir), path, 0);
        else
            rc = sandbox_import_one(s, dirfd(dir), e->d_name, path, err);
        n++;
    }
    return rc < 0 ? -1 : n;
}

int sandbox_import_all(struct sandboxes *s, DIR *dir, struct err *err) {
    int n = sandbox_import_each(s, dir, false, err);
    if (n <= 0)
        return n;
    if (store_commit_now(s->store, err) < 0)
        return -1;
    return sandbox_import_each(s, dir, true, err) < 0 ? -1 : 0;
}

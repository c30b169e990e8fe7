/* The manifest decoder against any bytes: it never crashes, what it lets through keeps the promises
 * of sync_request.h, and what it refuses comes with a sound error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "sync_request.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void check_entry(const struct sync_entry *e) {
    require(strlen(e->path) == e->path_len && bundle_path_ok(e->path, e->path_len));
    require(strlen(e->target) == e->target_len && e->target_len <= FILEOP_TARGET_MAX);
    require(e->kind == FILEOP_FILE || e->kind == FILEOP_DIRECTORY || e->kind == FILEOP_SYMLINK);
    require((e->kind == FILEOP_SYMLINK) == (e->target_len > 0));
    require(e->mode <= 0777 || e->mode == SYNC_MODE_ANY);
    require(e->size <= SYNC_SIZE_MAX);
}

static void check_request(const struct sync_request *r) {
    require(sync_root_ok(r->root, strlen(r->root)));
    for (size_t i = 0; i < r->count; i++) {
        const struct sync_entry *e = &r->entries[i], *before = e - 1;
        const char *slash = strrchr(e->path, '/');
        check_entry(e);
        if (i > 0)
            require(sync_path_compare(before->path, before->path_len, e->path, e->path_len) < 0);
        /* Its parent came before it and is a directory. */
        size_t k = i;
        while (slash != NULL && k > 0) {
            const struct sync_entry *up = &r->entries[--k];
            if (up->path_len == (size_t)(slash - e->path) &&
                memcmp(up->path, e->path, up->path_len) == 0) {
                require(up->kind == FILEOP_DIRECTORY);
                break;
            }
            require(k > 0);
        }
        require(slash == NULL || i > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sync_request r;
    struct api_error error = {0};
    char *json = malloc(size + 1);
    require(json != NULL);
    memcpy(json, data, size);
    json[size] = '\0';
    if (sync_request_decode(json, size, &r, &error) == 0) {
        check_request(&r);
        sync_request_done(&r);
        return 0;
    }
    free(json);
    require(error.status == 400 || error.status == 413);
    require(error.code[0] != '\0' && error.message[0] != '\0');
    require(text_is_utf8(error.message, strlen(error.message)) &&
            text_is_utf8(error.field, strlen(error.field)));
    return 0;
}

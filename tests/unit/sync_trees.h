/* Trees for tests of workspace transfer, written as text: one line per path.
 *
 *   d 755 dir 7         directory; its inode number is 7 (1000 when left out)
 *   f 644 dir/a abc 5   file with these contents; its inode number and ctime are 5
 *   l link a            symbolic link
 *   p pipe              FIFO
 *   w gone              whiteout
 *   o 755 dir           opaque directory */
#pragma once

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sync_plan.h"
#include "unit.h"

static inline void sync_trees_hash(const char *text, unsigned char *sha256) {
    crypto_hash_sha256(sha256, (const unsigned char *)text, strlen(text));
}

static inline void sync_trees_line(struct sync_tree *t, char *line) {
    char *rest = NULL, *word[5] = {"", "", "", "", ""};
    struct fileop_record rec = {.type = FILEOP_ENTRY};
    struct err e;
    size_t n = 0;
    for (char *w = strtok_r(line, " ", &rest); w != NULL && n < 5; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    const char *path = word[1], *target = "";
    switch (word[0][0]) {
    case 'd':
    case 'o':
        rec.kind = FILEOP_DIRECTORY;
        rec.flags = word[0][0] == 'o' ? FILEOP_OPAQUE : 0;
        rec.mode = (uint32_t)strtoul(word[1], NULL, 8);
        path = word[2];
        rec.inode = word[3][0] != '\0' ? strtoull(word[3], NULL, 10) : 1000;
        break;
    case 'f':
        rec.kind = FILEOP_FILE;
        rec.mode = (uint32_t)strtoul(word[1], NULL, 8);
        path = word[2];
        rec.size = strcmp(word[3], "-") == 0 ? 0 : strlen(word[3]);
        rec.inode = strtoull(word[4], NULL, 10);
        rec.ctime_ns = (int64_t)rec.inode;
        break;
    case 'l':
        rec.kind = FILEOP_SYMLINK;
        target = word[2];
        break;
    default:
        rec.kind = word[0][0] == 'p' ? FILEOP_FIFO : FILEOP_WHITEOUT;
        break;
    }
    rec.path_len = (uint32_t)strlen(path);
    rec.target_len = (uint32_t)strlen(target);
    unit_works(sync_tree_add(t, &rec, path, target, &e), e);
}

static inline void sync_trees_read(struct sync_tree *t, const char *text) {
    char *copy = strdup(text), *rest = NULL;
    struct err e;
    assert_non_null(copy);
    sync_tree_init(t);
    for (char *line = strtok_r(copy, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        sync_trees_line(t, line);
    free(copy);
    unit_works(sync_tree_finish(t, &e), e);
}

/* What `read` would find in a file of the text, where line `f … path contents`. */
static inline void sync_trees_contents(const char *text, const char *path, unsigned char *sha256) {
    char *copy = strdup(text), *rest = NULL;
    int found = 0;
    assert_non_null(copy);
    for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char at[256], contents[256];
        if (sscanf(line, "f %*s %255s %255s", at, contents) == 2 && strcmp(at, path) == 0) {
            sync_trees_hash(strcmp(contents, "-") == 0 ? "" : contents, sha256);
            found = 1;
        }
    }
    free(copy);
    if (!found)
        fail_msg("no file %s in the tree", path);
}

/* A manifest of the same notation. */
static inline void sync_trees_want(struct sync_request *r, const char *text) {
    static const char digits[] = "0123456789abcdef";
    char *copy = strdup(text), *rest = NULL, *json = malloc(65536);
    size_t at = 0;
    struct api_error e = {0};
    assert_non_null(copy);
    assert_non_null(json);
    at += (size_t)snprintf(json, 65536, "{\"entries\":[");
    for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char a[256] = "", b[256] = "", c[256] = "";
        char hex[65] = "";
        unsigned char hash[32];
        sscanf(line, "%*s %255s %255s %255s", a, b, c);
        if (line[0] == 'f') {
            const char *contents = strcmp(c, "-") == 0 ? "" : c;
            sync_trees_hash(contents, hash);
            for (int i = 0; i < 32; i++) {
                hex[2 * i] = digits[hash[i] >> 4];
                hex[2 * i + 1] = digits[hash[i] & 15];
            }
            at += (size_t)snprintf(json + at, 65536 - at,
                                   "%s{\"path\":\"%s\",\"type\":\"file\",\"mode\":\"0%s\","
                                   "\"size\":%zu,\"sha256\":\"%s\"}",
                                   json[at - 1] == '[' ? "" : ",", b, a, strlen(contents), hex);
        } else if (line[0] == 'd') {
            at += (size_t)snprintf(json + at, 65536 - at,
                                   "%s{\"path\":\"%s\",\"type\":\"directory\",\"mode\":\"0%s\"}",
                                   json[at - 1] == '[' ? "" : ",", b, a);
        } else {
            at += (size_t)snprintf(json + at, 65536 - at,
                                   "%s{\"path\":\"%s\",\"type\":\"symlink\",\"target\":\"%s\"}",
                                   json[at - 1] == '[' ? "" : ",", a, b);
        }
    }
    at += (size_t)snprintf(json + at, 65536 - at, "]}");
    free(copy);
    if (sync_request_decode(json, at, r, &e) != 0)
        fail_msg("%s: %s", e.field, e.message);
}

/* The undo journal of a workspace as it may be found: an entry that reads can be listed, one that
 * had begun is taken back or refused, and nothing outside of the workspace is touched. The first
 * byte chooses whether the entry was committed. */
#include <stdio.h>

#include "fuzz.h"
#include "undo_internal.h"

static bool listed(void *arg, const struct undo_entry *entry) {
    (void)arg;
    fuzz_require(entry->id != NULL);
    for (size_t i = 0; i < entry->count; i++)
        fuzz_require(entry->changes[i].path != NULL);
    return true;
}

static bool bad(void *arg, const char *id, const char *why) {
    (void)arg;
    fuzz_require(id != NULL && why != NULL);
    return true;
}

/* -> the directory of entries of the only workspace in the journal. */
static int fuzz_entries(int top) {
    int journal = openat(top, "journal", O_RDONLY | O_DIRECTORY);
    DIR *d = journal < 0 ? NULL : fdopendir(journal);
    char name[400] = "";
    fuzz_require(d != NULL);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            snprintf(name, sizeof(name), "journal/%s/entries", e->d_name);
    closedir(d);
    int fd = openat(top, name, O_RDONLY | O_DIRECTORY);
    fuzz_require(fd >= 0);
    return fd;
}

static struct undo *fuzz_open(int root, const char *path) {
    char work[64], journal[64];
    struct err err = {0};
    snprintf(work, sizeof(work), "%s/work", path);
    snprintf(journal, sizeof(journal), "%s/journal", path);
    struct undo_options options = {.root = root, .path = work, .journal = journal};
    struct undo *u = undo_open(&options, &err);
    fuzz_require(u != NULL || err.text[0] != '\0');
    return u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)], text[16] = "";
    struct undo_choice choice = {0};
    struct undo_result result = {0};
    struct err err = {0};
    if (size == 0)
        return 0;
    int top = fuzz_dir(path);
    fuzz_require(mkdirat(top, "work", 0700) == 0 && mkdirat(top, "journal", 0700) == 0);
    fuzz_file(top, "outside", "secret", 6);
    int root = openat(top, "work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fuzz_file(root, "a", "old", 3);
    fuzz_require(symlinkat("../outside", root, "l") == 0);
    undo_close(fuzz_open(root, path));
    int entries = fuzz_entries(top);
    fuzz_file(entries, data[0] & 1 ? "ch_0000000001.todo" : "ch_0000000001", data + 1, size - 1);
    close(entries);
    struct undo *u = fuzz_open(root, path);
    if (u != NULL) {
        (void)undo_list(u, listed, NULL, &err);
        (void)undo_verify(u, bad, NULL, &err);
        if (undo_undo(u, &choice, &result, &err) == 0)
            free(result.outcomes);
        undo_close(u);
    }
    close(root);
    int fd = openat(top, "outside", O_RDONLY | O_NOFOLLOW);
    fuzz_require(fd >= 0 && read(fd, text, sizeof(text)) == 6 && memcmp(text, "secret", 6) == 0);
    close(fd);
    fuzz_remove(top, path);
    return 0;
}

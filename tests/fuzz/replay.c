/* Runs a fuzz harness over files and directories of files that are there already, without a fuzzer:
 * `replay-NAME PATH…`. Prints TAP: one test. An input that goes wrong ends the process through its
 * sanitizer; the last "#" line names it. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPLAY_MAX (8u * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        printf("# cannot open %s\n", path);
        return -1;
    }
    printf("# %s\n", path);
    fflush(stdout);
    char *bytes = malloc(REPLAY_MAX);
    size_t size = bytes ? fread(bytes, 1, REPLAY_MAX, file) : 0;
    int rc = !bytes || ferror(file) ? -1 : 0;
    fclose(file);
    /* A copy of exactly this size: reading one byte too far is then an error. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) {
        rc = -1;
    } else if (rc == 0) {
        if (size)
            memcpy(exact, bytes, size);
        LLVMFuzzerTestOneInput(exact, size);
    }
    free(exact);
    free(bytes);
    return rc;
}

/* -> number of inputs, -1 when one could not be read. */
static int replay_path(const char *path) {
    struct stat st;
    if (stat(path, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        return replay_file(path) < 0 ? -1 : 1;
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, alphasort);
    int done = 0;
    for (int i = 0; i < count; i++) {
        char inner[PATH_MAX];
        snprintf(inner, sizeof(inner), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && done >= 0)
            done = replay_file(inner) < 0 ? -1 : done + 1;
        free(names[i]);
    }
    free(names);
    return count < 0 ? -1 : done;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc && total >= 0; i++) {
        int n = replay_path(argv[i]);
        total = n < 0 ? -1 : total + n;
    }
    const char *slash = strrchr(argv[0], '/');
    printf("1..1\n%sok 1 - %s: %d inputs\n", total > 0 ? "" : "not ", slash ? slash + 1 : argv[0],
           total);
    return total > 0 ? 0 : 1;
}

/* An ignore file and a path: what is built in stays out, and the walk agrees with the question.
 * Parts are separated by 0xff: the file, the path, a newer file. */
#include "ws_ignore.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ws_ignore g;
    struct err err = {0};
    size_t len[3];
    const uint8_t *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = fuzz_part(&data, &size, &len[i]);
    if (len[1] > 4000)
        return 0;
    char *path = fuzz_text(part[1], len[1]);
    fuzz_require(ws_ignore_init(&g, &err) == 0);
    if (ws_ignore_add(&g, "", (const char *)part[0], len[0], &err) == 0) {
        fuzz_require(ws_ignore_match(&g, ".git", true) &&
                     ws_ignore_covers(&g, ".git/config", false));
        fuzz_require(ws_ignore_covers(&g, "a/.pinfold/x", false));
        bool is = ws_ignore_match(&g, path, false);
        fuzz_require(!is || ws_ignore_covers(&g, path, false));
        (void)ws_ignore_glob(path, path);
    }
    ws_ignore_done(&g);
    fuzz_require(!ws_ignore_loosens((const char *)part[0], len[0], (const char *)part[0], len[0]) ||
                 memchr(part[0], '!', len[0]) != NULL);
    (void)ws_ignore_loosens((const char *)part[0], len[0], (const char *)part[2], len[2]);
    free(path);
    return 0;
}

/* The body of a move within a sandbox: two paths that are paths, or a refusal. */
#include "file_move.h"

#include "fuzz.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char from[FILE_PATH_SIZE], to[FILE_PATH_SIZE];
    struct api_error error = {0};
    bool replace = false;
    if (file_move_decode((const char *)data, size, from, to, &replace, &error) == 0) {
        fuzz_require(strnlen(from, sizeof(from)) < sizeof(from));
        fuzz_require(strnlen(to, sizeof(to)) < sizeof(to));
        fuzz_require(strstr(from, "/../") == NULL && strstr(to, "/../") == NULL);
    } else {
        fuzz_require(error.status >= 400 && error.status < 500 && error.code[0] != '\0');
        fuzz_require(text_is_utf8(error.message, strlen(error.message)));
    }
    return 0;
}

/* Any bytes as a reference to an image and as a registry's challenge: what is taken is well formed,
 * and nothing leads to plain HTTP elsewhere. */
#include "image_registry.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct image_registry_challenge challenge;
    struct image_registry_ref ref;
    struct err err = {0};
    char *text = malloc(size + 1);

    fuzz_require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (image_registry_parse(text, &ref, &err) == 0) {
        fuzz_require(ref.host[0] != '\0' && ref.path[0] != '\0');
        fuzz_require(strstr(ref.path, "..") == NULL || strchr(ref.path, '/') != NULL ||
                     ref.path[0] != '.');
        fuzz_require(ref.tag[0] != '\0' || strlen(ref.hex) == 64);
        fuzz_require(strpbrk(ref.host, "/@?# ") == NULL && strpbrk(ref.path, "@?#% ") == NULL);
    } else {
        fuzz_require(err.kind == ERR_INVALID && err.text[0] != '\0');
    }
    if (image_registry_challenge(text, &challenge) && !challenge.basic)
        fuzz_require(challenge.realm[0] != '\0' && strchr(challenge.realm, '"') == NULL);
    if (image_registry_url_ok(text, false))
        fuzz_require(strncmp(text, "https://", 8) == 0);
    free(text);
    return 0;
}

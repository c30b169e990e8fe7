#include "image_ref.h"

#include <string.h>

#include "str.h"

#define IMAGE_REF_MARK "@sha256:"

static int image_ref_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool image_ref_hex(const char *text, uint8_t sha256[32]) {
    uint8_t bytes[32];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        int high = image_ref_digit(text[2 * i]);
        int low = high < 0 ? -1 : image_ref_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (text[64] != '\0')
        return false;
    memcpy(sha256, bytes, sizeof(bytes));
    return true;
}

void image_ref_to_hex(const uint8_t sha256[32], char out[65]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 32; i++) {
        out[2 * i] = digits[sha256[i] >> 4];
        out[2 * i + 1] = digits[sha256[i] & 15];
    }
    out[64] = '\0';
}

int image_ref_parse(const char *text, struct image_ref *out, struct err *err) {
    struct image_ref ref = {0};
    size_t len = strcspn(text, "@");
    if (len >= sizeof(ref.name))
        return err_set(err, ERR_INVALID, 0, "the name of an image has at most 63 characters");
    memcpy(ref.name, text, len);
    if (!str_is_name(ref.name))
        return err_set(err, ERR_INVALID, 0,
                       "an image is named with letters, digits, '_', '.' and '-'");
    if (text[len] != '\0') {
        if (strncmp(text + len, IMAGE_REF_MARK, strlen(IMAGE_REF_MARK)) != 0 ||
            !image_ref_hex(text + len + strlen(IMAGE_REF_MARK), ref.sha256))
            return err_set(err, ERR_INVALID, 0,
                           "after the name of an image, @sha256: and 64 lower-case hex digits may "
                           "follow, and nothing else");
        if (strcmp(ref.name, "host") == 0)
            return err_set(err, ERR_INVALID, 0, "the image host has no digest");
        ref.pinned = true;
    }
    *out = ref;
    return 0;
}

bool image_ref_allows(const struct image_ref *list, size_t count, const char *name,
                      const uint8_t sha256[32]) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0 &&
            (!list[i].pinned || memcmp(list[i].sha256, sha256, sizeof(list[i].sha256)) == 0))
            return true;
    return false;
}

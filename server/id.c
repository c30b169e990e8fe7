#include "id.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#define ID_CHARS_MIN 20u
#define ID_CHARS_MAX 32u

int id_make(char *out, size_t size, const char *prefix, struct err *err) {
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[2 * ID_RANDOM_CHARS];
    size_t len = strlen(prefix), left = 0, n = 0;
    if (len + ID_RANDOM_CHARS + 1 > size)
        return err_set(err, ERR_LIMIT, 0, "an id that begins with %s does not fit", prefix);
    char text[ID_RANDOM_CHARS];
    while (n < ID_RANDOM_CHARS) {
        if (left == 0) {
            if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
                return err_sys(err, "making an id");
            left = sizeof(bytes);
        }
        unsigned char byte = bytes[--left];
        if (byte < 252) /* 7 * 36: no letter is more likely than another */
            text[n++] = alphabet[byte % 36];
    }
    memcpy(out, prefix, len);
    memcpy(out + len, text, n);
    out[len + n] = '\0';
    return 0;
}

bool id_is(const char *text, const char *prefix) {
    size_t len = strlen(prefix);
    if (strncmp(text, prefix, len) != 0)
        return false;
    size_t rest = strspn(text + len, "abcdefghijklmnopqrstuvwxyz0123456789");
    return text[len + rest] == '\0' && rest >= ID_CHARS_MIN && rest <= ID_CHARS_MAX;
}

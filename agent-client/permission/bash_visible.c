#include <stdint.h>

#include "bash_parse.h"

/* Ranges of code points that show as nothing, as a blank, or turn the text around. */
static const struct {
    uint32_t first, last;
} bash_visible_not[] = {
    {0x80, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},      {0x61c, 0x61c},
    {0x115f, 0x1160},   {0x1680, 0x1680},   {0x17b4, 0x17b5},    {0x180b, 0x180f},
    {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},    {0x2800, 0x2800},
    {0x3000, 0x3000},   {0x3164, 0x3164},   {0xd800, 0xf8ff},    {0xfe00, 0xfe0f},
    {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},    {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff},
};

/* Length of the character at `s` and its code point; 0 when it is not UTF-8 in shortest form. */
static size_t bash_visible_decode(const unsigned char *s, size_t len, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    uint32_t c;

    if (size == 0 || size > len)
        return 0;
    c = s[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((s[i] & 0xc0u) != 0x80u)
            return 0;
        c = (c << 6) | (s[i] & 0x3fu);
    }
    *code = c;
    return c < least[size] || c > 0x10ffff ? 0 : size;
}

const char *bash_visible(const char *text, size_t len, size_t *at) {
    const unsigned char *s = (const unsigned char *)text;
    size_t pos = 0;

    while (pos < len) {
        uint32_t code = 0;
        size_t step;

        *at = pos;
        if (s[pos] == '\0')
            return "a NUL byte";
        if (s[pos] == 0x7f || (s[pos] < 0x20 && s[pos] != '\n' && s[pos] != '\t'))
            return "a control character";
        if (s[pos] < 0x80) {
            pos++;
            continue;
        }
        step = bash_visible_decode(s + pos, len - pos, &code);
        if (step == 0)
            return "bytes that are not UTF-8";
        for (size_t i = 0; i < sizeof(bash_visible_not) / sizeof(bash_visible_not[0]); i++)
            if (code >= bash_visible_not[i].first && code <= bash_visible_not[i].last)
                return "an invisible character";
        pos += step;
    }
    return NULL;
}

#include "say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "text.h"

#define SAY_MAX 2000

/* Length of the character at `text` (1 to 4) and its code point; 0 when it is not UTF-8. */
static size_t say_decode(const char *text, size_t len, uint32_t *code) {
    const unsigned char *b = (const unsigned char *)text;
    size_t size = b[0] < 0x80 ? 1 : b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;

    if (size > len || !text_is_utf8(text, size))
        return 0;
    *code = size == 1 ? b[0] : (uint32_t)b[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++)
        *code = (*code << 6) | (b[i] & 0x3fu);
    return size;
}

static bool say_is_hidden(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff0 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

const char *say_clean(char *dst, size_t size, const char *text) {
    size_t len = strlen(text), used = 0;

    for (size_t pos = 0; pos < len;) {
        uint32_t code = 0;
        size_t step = say_decode(text + pos, len - pos, &code);
        bool hidden = step == 0 || say_is_hidden(code);
        size_t width = hidden ? 1 : step;

        if (used + width + 1 > size)
            break;
        if (hidden)
            dst[used] = '?';
        else
            memcpy(dst + used, text + pos, step);
        used += width;
        pos += step == 0 ? 1 : step;
    }
    dst[used] = '\0';
    return dst;
}

/* A terminal in raw mode does not return the carriage by itself. */
static bool say_is_raw(void) {
    struct termios now;

    return tcgetattr(STDERR_FILENO, &now) == 0 && (now.c_oflag & OPOST) == 0;
}

void say_line(const char *fmt, ...) {
    char raw[SAY_MAX], line[SAY_MAX + 16];
    size_t len;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    memcpy(line, "pinfold: ", 9);
    say_clean(line + 9, SAY_MAX, raw);
    len = strlen(line);
    if (say_is_raw())
        line[len++] = '\r';
    line[len++] = '\n';
    /* One write, so that lines of several processes on one terminal do not mix. */
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

void say_put(FILE *out, const char *text) {
    char clean[SAY_MAX];

    if (text != NULL)
        fputs(say_clean(clean, sizeof(clean), text), out);
}

size_t say_columns(const char *text) {
    size_t count = 0;

    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0u) != 0x80u;
    return count;
}

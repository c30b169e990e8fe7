#include "agent_text.h"

#include <string.h>

#define AGENT_TEXT_SNAP 200u /* how far a cut may move to the end of a line */

/* Length of the UTF-8 character at p (at most `len` bytes are there), 0 = it is none. */
static size_t agent_text_character(const unsigned char *p, size_t len) {
    size_t n = p[0] < 0x80                    ? 1
               : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
               : (p[0] & 0xf0) == 0xe0        ? 3
               : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                              : 0;
    if (n == 0 || n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

int agent_text_clean(struct buf *out, const char *text, size_t len, struct err *err) {
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        size_t n = agent_text_character(p + i, len - i);
        bool odd =
            n == 0 || (n == 1 && (p[i] < 0x20 || p[i] == 0x7f) && p[i] != '\n' && p[i] != '\t');
        if (buf_append(out, odd ? "?" : text + i, odd ? 1 : n, err) < 0)
            return -1;
        i += n == 0 ? 1 : n;
    }
    return 0;
}

/* Bytes of the escape sequence at p, which begins with ESC. */
static size_t agent_text_escape(const char *p, size_t len) {
    size_t n = 2;
    if (len < 2)
        return len;
    if (p[1] == '[') { /* CSI: parameters, then a letter */
        while (n < len && (unsigned char)p[n] >= 0x20 && (unsigned char)p[n] < 0x40)
            n++;
        return n < len ? n + 1 : n;
    }
    if (p[1] == ']' || p[1] == 'P' || p[1] == '^' || p[1] == '_') { /* to BEL or ESC \\ */
        while (n < len && p[n] != '\a' && p[n] != '\n' &&
               !(p[n] == '\x1b' && n + 1 < len && p[n + 1] == '\\'))
            n++;
        return n >= len || p[n] == '\n' ? n : n + (p[n] == '\a' ? 1 : 2);
    }
    while (n < len && (unsigned char)p[n - 1] >= 0x20 && (unsigned char)p[n - 1] < 0x30)
        n++; /* as ESC ( B */
    return n;
}

/* One character back, within the line. */
static void agent_text_back(struct buf *out, size_t line) {
    while (out->len > line) {
        unsigned char c = (unsigned char)out->data[--out->len];
        out->data[out->len] = '\0';
        if ((c & 0xc0) != 0x80)
            return;
    }
}

int agent_text_plain(struct buf *out, const char *text, size_t len, struct err *err) {
    size_t line = out->len;
    bool over = false; /* what comes next is written over the line */
    for (size_t i = 0; i < len;) {
        char c = text[i];
        size_t n = 1;
        if (c == '\x1b') {
            n = agent_text_escape(text + i, len - i);
        } else if (c == '\r') {
            over = true;
        } else if (c == '\b') {
            agent_text_back(out, line);
        } else if (c != '\a') {
            if (over && c != '\n' && out->len > line)
                out->data[out->len = line] = '\0';
            over = false;
            if (buf_append(out, &c, 1, err) < 0)
                return -1;
            if (c == '\n')
                line = out->len;
        }
        i += n;
    }
    return 0;
}

bool agent_text_is_binary(const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text;
    size_t odd = 0;
    if (len > 0 && memchr(text, '\0', len) != NULL)
        return true;
    for (size_t i = 0; i < len;) {
        size_t n = agent_text_character(p + i, len - i);
        odd += n == 0;
        i += n == 0 ? 1 : n;
    }
    return odd * 10 > len;
}

uint64_t agent_text_tokens(const char *text) {
    return text == NULL ? 0 : strlen(text) / 3 + 1;
}

static size_t agent_text_count(const char *text, size_t len) {
    size_t n = 0;
    for (const char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text))) != NULL; p++)
        n++;
    return n;
}

int agent_text_bound(struct buf *out, const char *text, size_t len, size_t max, const char *handle,
                     struct err *err) {
    if (len <= max)
        return agent_text_clean(out, text, len, err);
    size_t head = max / 2, tail = len - max / 2;
    for (size_t i = 0; i < AGENT_TEXT_SNAP && i < head; i++)
        if (text[head - i - 1] == '\n') {
            head -= i;
            break;
        }
    for (size_t i = 0; i < AGENT_TEXT_SNAP && tail + i < len; i++)
        if (text[tail + i - 1] == '\n') {
            tail += i;
            break;
        }
    if (agent_text_clean(out, text, head, err) < 0)
        return -1;
    if (buf_printf(out, err, "%s[%zu bytes omitted, %zu lines%s%s]\n",
                   out->len > 0 && out->data[out->len - 1] != '\n' ? "\n" : "", tail - head,
                   agent_text_count(text + head, tail - head), handle != NULL ? "; " : "",
                   handle != NULL ? handle : "") < 0)
        return -1;
    return agent_text_clean(out, text + tail, len - tail, err);
}

int agent_text_lines(struct buf *out, const char *text, size_t len, size_t from, size_t count,
                     size_t *total, struct err *err) {
    size_t number = 0;
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end != NULL ? (size_t)(end - text) : len;
        number++;
        if (number >= from && number - from < count &&
            (buf_printf(out, err, "%5zu\t", number) < 0 ||
             agent_text_clean(out, text, n, err) < 0 || buf_puts(out, "\n", err) < 0))
            return -1;
        n += end != NULL;
        text += n;
        len -= n;
    }
    *total = number;
    return 0;
}

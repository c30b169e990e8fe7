/* $'…' */
#include "bash_lex.h"

#include <stdint.h>
#include <string.h>

static int bash_ansi_digit(char c, unsigned base) {
    int v = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;

    return v < (int)base ? v : -1;
}

/* At most `most` digits at pos; false when there is none. */
static bool bash_ansi_number(struct bash_state *st, unsigned base, size_t most, uint32_t *value) {
    uint32_t v = 0;
    size_t n = 0;

    while (n < most && bash_ansi_digit(bash_lex_at(st, 0), base) >= 0) {
        v = v * base + (uint32_t)bash_ansi_digit(bash_lex_at(st, 0), base);
        st->pos++;
        n++;
    }
    *value = v;
    return n > 0;
}

/* A byte that may be a control character: those are markers here, so it becomes unknown text. */
static int bash_ansi_put(struct bash_state *st, struct bash_build *b, uint32_t byte) {
    if ((byte & 0xffu) == 0)
        return bash_lex_fail(st, "a NUL in $'…'");
    if ((byte & 0xffu) < 0x20 && byte != '\n' && byte != '\t')
        bash_build_any(st, b, 0);
    else
        bash_build_byte(st, b, (char)(byte & 0xffu));
    return 0;
}

static int bash_ansi_unicode(struct bash_state *st, struct bash_build *b, uint32_t c) {
    if (c == 0 || c > 0x10ffff)
        return bash_lex_fail(st, "a character in $'…' that does not exist");
    if (c < 0x80)
        return bash_ansi_put(st, b, c);
    if (c >= 0x10000) {
        bash_build_byte(st, b, (char)(0xf0u | (c >> 18)));
        bash_build_byte(st, b, (char)(0x80u | ((c >> 12) & 0x3fu)));
    } else if (c >= 0x800) {
        bash_build_byte(st, b, (char)(0xe0u | (c >> 12)));
    } else {
        bash_build_byte(st, b, (char)(0xc0u | (c >> 6)));
    }
    if (c >= 0x800)
        bash_build_byte(st, b, (char)(0x80u | ((c >> 6) & 0x3fu)));
    bash_build_byte(st, b, (char)(0x80u | (c & 0x3fu)));
    return 0;
}

/* Behind the backslash. */
static int bash_ansi_escape(struct bash_state *st, struct bash_build *b) {
    static const char from[] = "abeEfnrtv\\'\"?", to[] = "\a\b\033\033\f\n\r\t\v\\'\"?";
    char c = bash_lex_at(st, 0);
    const char *simple = c != '\0' ? strchr(from, c) : NULL;
    uint32_t value = 0;

    if (simple != NULL) {
        st->pos++;
        return bash_ansi_put(st, b, (unsigned char)to[simple - from]);
    }
    if (c >= '0' && c <= '7') {
        bash_ansi_number(st, 8, 3, &value);
        return bash_ansi_put(st, b, value);
    }
    if (c == 'x' && bash_lex_at(st, 1) != '{') {
        st->pos++;
        if (!bash_ansi_number(st, 16, 2, &value))
            return bash_lex_fail(st, "an escape in $'…' that is not known");
        return bash_ansi_put(st, b, value);
    }
    if (c == 'u' || c == 'U') {
        st->pos++;
        if (!bash_ansi_number(st, 16, c == 'u' ? 4 : 8, &value))
            return bash_lex_fail(st, "an escape in $'…' that is not known");
        return bash_ansi_unicode(st, b, value);
    }
    /* \cX is a control character, the rest stays as it is in some versions and not in others. */
    return bash_lex_fail(st, "an escape in $'…' that is not known");
}

int bash_ansi(struct bash_state *st, struct bash_build *b) {
    b->flags |= BASH_WORD_QUOTED;
    while (st->pos < st->len) {
        char c = st->s[st->pos++];

        if (c == '\'')
            return 0;
        if (c == '\\') {
            if (bash_ansi_escape(st, b) < 0)
                return -1;
        } else {
            bash_build_byte(st, b, c);
        }
        if (st->why != NULL)
            return -1;
    }
    return bash_lex_fail(st, "$'…' is not closed");
}

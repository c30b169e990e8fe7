#include "modes.h"

#include <stdbool.h>
#include <stdio.h>

/* In the order in which they are put back: the other screen first, since some terminals keep the
 * rest per screen. */
static const struct modes_row {
    unsigned number;
    bool on; /* by default */
} modes_table[] = {
    {1049, false}, /* the other screen, with the cursor saved */
    {1047, false}, /* the same without */
    {47, false},   /* the same, older */
    {1, false},    /* cursor keys send other codes */
    {7, true},     /* lines wrap */
    {25, true},    /* the cursor is shown */
    {9, false},    /* the mouse is reported, in the many ways there are */
    {1000, false}, {1001, false}, {1002, false}, {1003, false}, {1004, false}, /* so is the focus */
    {1005, false}, {1006, false}, {1015, false}, {2004, false}, /* what is pasted is marked */
};

#define MODES_COUNT (sizeof(modes_table) / sizeof(modes_table[0]))
#define MODES_NUMBER_MAX 99999u

static void modes_set(struct modes *m, bool on) {
    for (size_t p = 0; p < m->count; p++)
        for (size_t i = 0; i < MODES_COUNT; i++)
            if (modes_table[i].number == m->param[p]) {
                if (on != modes_table[i].on)
                    m->changed |= 1u << i;
                else
                    m->changed &= ~(1u << i);
            }
}

static void modes_private(struct modes *m, char c) {
    unsigned *last = &m->param[m->count - 1];

    if (c >= '0' && c <= '9') {
        if (*last < MODES_NUMBER_MAX)
            *last = *last * 10 + (unsigned)(c - '0');
        return;
    }
    if (c == ';' && m->count < MODES_PARAMS) {
        m->param[m->count++] = 0;
        return;
    }
    if (c == 'h' || c == 'l')
        modes_set(m, c == 'h');
    m->state = MODES_TEXT;
}

void modes_feed(struct modes *m, const char *data, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = data[i];

        if (c == '\033') {
            m->state = MODES_ESC;
            continue;
        }
        switch (m->state) {
        case MODES_TEXT:
            break;
        case MODES_ESC:
            /* RIS: everything as it is by default. */
            if (c == 'c')
                m->changed = 0;
            m->state = c == '[' ? MODES_CSI : MODES_TEXT;
            break;
        case MODES_CSI:
            m->state = c == '?' ? MODES_PRIVATE : MODES_TEXT;
            m->count = 1;
            m->param[0] = 0;
            break;
        case MODES_PRIVATE:
            modes_private(m, c);
            break;
        }
    }
}

size_t modes_reset(const struct modes *m, char dst[MODES_RESET_MAX]) {
    size_t n = 0;

    dst[0] = '\0';
    for (size_t i = 0; i < MODES_COUNT; i++)
        if ((m->changed & 1u << i) != 0)
            n += (size_t)snprintf(dst + n, MODES_RESET_MAX - n, "\033[?%u%c", modes_table[i].number,
                                  modes_table[i].on ? 'h' : 'l');
    return n;
}

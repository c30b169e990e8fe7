#include "escape.h"

size_t escape_feed(struct escape *e, const char *in, size_t len, char *out, bool *leave) {
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = in[i];

        if (e->tilde) {
            e->tilde = false;
            if (c == '.') {
                *leave = true;
                return n;
            }
            out[n++] = '~';
            if (c == '~') {
                e->inside = true;
                continue;
            }
        } else if (c == '~' && !e->inside) {
            e->tilde = true;
            continue;
        }
        out[n++] = c;
        e->inside = c != '\r' && c != '\n';
    }
    return n;
}

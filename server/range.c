#include "range.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Digits up to `end`, saturating; false when there is none or something else. */
static bool range_number(const char *text, const char *end, uint64_t *value) {
    uint64_t v = 0;
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
    }
    *value = v;
    return true;
}

enum range_result range_parse(const char *header, uint64_t size, uint64_t *first, uint64_t *last) {
    static const char unit[] = "bytes=";
    uint64_t from = 0, to = 0;
    if (header == NULL || strncasecmp(header, unit, sizeof(unit) - 1) != 0)
        return RANGE_NONE;
    const char *text = header + sizeof(unit) - 1;
    const char *end = text + strlen(text);
    const char *dash = strchr(text, '-');
    if (dash == NULL || strchr(text, ',') != NULL)
        return RANGE_NONE;
    bool has_from = range_number(text, dash, &from);
    bool has_to = range_number(dash + 1, end, &to);
    if ((!has_from && dash != text) || (!has_to && dash + 1 != end) || (!has_from && !has_to))
        return RANGE_NONE;
    if (!has_from) { /* the last `to` bytes */
        if (to == 0 || size == 0)
            return RANGE_UNSATISFIABLE;
        *first = to < size ? size - to : 0;
        *last = size - 1;
        return RANGE_PART;
    }
    if (has_to && to < from)
        return RANGE_NONE;
    if (from >= size)
        return RANGE_UNSATISFIABLE;
    *first = from;
    *last = has_to && to < size ? to : size - 1;
    return RANGE_PART;
}

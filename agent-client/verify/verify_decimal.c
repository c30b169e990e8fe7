#include "verify_decimal.h"

#include <stdio.h>
#include <string.h>

static const char *verify_decimal_digits(const char *p, int most, verify_decimal *value, int *n) {
    for (*n = 0; *p >= '0' && *p <= '9'; p++) {
        if (++*n > most)
            return NULL;
        *value = *value * 10 + (*p - '0');
    }
    return p;
}

bool verify_decimal_parse(const char *text, verify_decimal *out) {
    verify_decimal value = 0;
    int before = 0, after = 0;
    const char *p = text + strspn(text, " \t");
    bool negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    /* Leading zeros say nothing. */
    bool zero = *p == '0';
    p += strspn(p, "0");
    p = verify_decimal_digits(p, VERIFY_DECIMAL_DIGITS, &value, &before);
    if (p == NULL)
        return false;
    if (*p == '.') {
        p = verify_decimal_digits(p + 1, VERIFY_DECIMAL_PLACES, &value, &after);
        if (p == NULL)
            return false;
    }
    p += strspn(p, " \t");
    if (*p != '\0' || (before == 0 && after == 0 && !zero))
        return false;
    for (int i = after; i < VERIFY_DECIMAL_PLACES; i++)
        value *= 10;
    *out = negative ? -value : value;
    return true;
}

void verify_decimal_print(verify_decimal value, char text[VERIFY_DECIMAL_SIZE]) {
    char digits[VERIFY_DECIMAL_SIZE];
    unsigned __int128 rest = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    size_t n = 0, places = VERIFY_DECIMAL_PLACES;
    while (rest > 0 || n <= VERIFY_DECIMAL_PLACES) {
        digits[n++] = (char)('0' + (int)(rest % 10));
        rest /= 10;
    }
    size_t low = 0;
    while (low < places && digits[low] == '0')
        low++;
    char *to = text;
    if (value < 0)
        *to++ = '-';
    while (n > low) {
        n--;
        *to++ = digits[n];
        if (n == places && low < places)
            *to++ = '.';
    }
    *to = '\0';
}

int verify_decimal_add(verify_decimal *sum, verify_decimal value, struct err *err) {
    verify_decimal out;
    if (__builtin_add_overflow(*sum, value, &out))
        return err_set(err, ERR_LIMIT, 0, "the sum is too large to be exact");
    *sum = out;
    return 0;
}

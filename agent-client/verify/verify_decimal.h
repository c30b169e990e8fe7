/* Decimal numbers, exactly: sums of money must not depend on how a binary fraction is rounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define VERIFY_DECIMAL_PLACES 12 /* after the point */
#define VERIFY_DECIMAL_DIGITS 18 /* before it */
#define VERIFY_DECIMAL_SIZE 64   /* as text, NUL included */

/* In units of 10^-12. */
typedef __int128 verify_decimal;

/* "-12.50", "+3", ".5", blanks around it allowed; nothing else (no exponent, no grouping). */
bool verify_decimal_parse(const char *text, verify_decimal *out);
/* The shortest text that means the same. */
void verify_decimal_print(verify_decimal value, char text[VERIFY_DECIMAL_SIZE]);
/* ERR_LIMIT when the sum is too large. */
int verify_decimal_add(verify_decimal *sum, verify_decimal value, struct err *err);

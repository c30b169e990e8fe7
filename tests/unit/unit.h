/* What every unit test includes after its module's header: cmocka with what it needs before it, and
 * checks for errors as values. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "err.h"

#define UNIT_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* `call` failed with this kind, and says why. `e` is the struct err that it was given. */
#define unit_fails(call, e, expected)                                                              \
    do {                                                                                           \
        err_clear(&(e));                                                                           \
        assert_int_equal((call), -1);                                                              \
        assert_int_equal((e).kind, (expected));                                                    \
        assert_true((e).text[0] != '\0');                                                          \
    } while (0)

/* `call` returned 0; what it says is printed when not. */
#define unit_works(call, e)                                                                        \
    do {                                                                                           \
        err_clear(&(e));                                                                           \
        if ((call) != 0)                                                                           \
            fail_msg("%s: %s", #call, (e).text);                                                   \
    } while (0)

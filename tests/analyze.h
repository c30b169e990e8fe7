/* Told to gcc -fanalyzer and clang-tidy before a source is read: the functions that take down an
 * error always return -1, which they cannot see from a prototype. Without this every "return
 * err_set(…)" is followed as if it had succeeded. */
#pragma once

#include "err.h"

#define err_plain(...) (err_plain(__VA_ARGS__), -1)
#define err_wrap(...) (err_wrap(__VA_ARGS__), -1)
#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_sys(...) (err_sys(__VA_ARGS__), -1)

/* The bare spawn: posix_spawn() of a program, and wait for its end. */
#pragma once

#include "bench_loop.h"

/* config: char *const argv[], argv[0] an absolute path. The program must exit with 0. */
struct bench_subject bench_spawn_subject(char *const argv[]);

/* Working memory for the one large struct of a process. It comes straight from the kernel, zeroed,
 * and costs only the pages that are touched. Nothing is ever given back: the process ends or execs.
 */
#pragma once

#include <stddef.h>

/* Never NULL: without memory the process ends. */
void *scratch_new(size_t size);

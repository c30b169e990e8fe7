/* File operations inside the jail (fileop.h): one per process, with the jail's user's rights.
 *
 * The process is that user by its effective ids alone, so that no program of the jail may signal or
 * trace it. Everything that it opens is opened by that user, and what it cannot do, no program
 * there can. */
#pragma once

#include "spec.h"

/* Does the operation spec->argv: records come from descriptor 0 and go to descriptor 1. `upper_fd`:
 * the upper directory of the overlay that the jail stands on, or -1. Sets the process's umask and
 * its signal dispositions for good. Returns the exit code: 0 when the answer was written. */
int fileop_run(struct spec *spec, int upper_fd);

/* Serves one file operation (fileop.h): spec->argv says which; records come in at descriptor 0 and
 * go out at 1. `upper` is the directory of what was written since the last snapshot, or -1. Returns
 * the exit code of the process. */
#pragma once

struct spec;

int fileop_run(struct spec *spec, int upper);

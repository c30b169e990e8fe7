/* What the runner keeps about engines in its directory STATE/run. */
#pragma once

#include "err.h"

#define HOME_OWNER_SIZE 33 /* 128 bits as hex, with NUL */

/* `run_dir`: path of STATE/run. By what the runner finds again what it made: a random number, made
 * once per state directory
 * (`name`: a copy of the directory is another one), so that nobody who may label containers on the
 * same engine can guess it, have their own taken for ours, or ours overlooked. */
int home_owner(const char *run_dir, const char *name, char out[HOME_OWNER_SIZE], struct err *err);

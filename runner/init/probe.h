/* Built-in commands with which the runner proves, at start and through the ordinary path of a run,
 * that its limits and walls hold on this host. Exit code 0: everything was refused as it should be;
 * 1…99: the number of the check that did not hold. */
#pragma once

#include "initmsg.h"

int probe_run(enum initmsg_probe what);

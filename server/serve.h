/* The subcommand `serve`. */
#pragma once

#include "subcommand.h"

extern const struct subcommand serve_cmd;

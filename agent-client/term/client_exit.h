/* Exit statuses that all subcommands share; the rest is the program's own. */
#pragma once

#define CLIENT_EXIT_USAGE 2
/* What is not the program's doing: the server away, a refusal, a lost connection. */
#define CLIENT_EXIT_TROUBLE 125

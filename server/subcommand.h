/* A subcommand of pinfold-server. main.c holds the table of all of them. */
#pragma once

struct subcommand {
    const char *name;
    const char *about; /* one line for the overview; NULL: not for people */
    /* argv[0] is the subcommand's name. Returns the exit status. */
    int (*run)(int argc, char **argv);
};

extern const struct subcommand init_cmd;
extern const struct subcommand image_cmd;
extern const struct subcommand user_cmd;
extern const struct subcommand token_cmd;
extern const struct subcommand config_cmd;
extern const struct subcommand audit_cmd;
extern const struct subcommand receipt_key_cmd;
extern const struct subcommand check_cmd;
extern const struct subcommand archives_cmd;

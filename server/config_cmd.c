#include <stdio.h>

#include "config.h"
#include "subcommand.h"

#define CONFIG_CMD_MAX ((size_t)256 * 1024)

static int config_cmd_print(const struct config *c, bool json, bool example, struct err *err) {
    struct buf out;
    buf_init(&out, CONFIG_CMD_MAX);
    int rc;
    if (example)
        rc = config_print_example(&out, err);
    else if (json)
        rc = config_print_json(c, &out, err);
    else
        rc = config_print(c, &out, err);
    if (rc == 0 && json && !example)
        rc = buf_puts(&out, "\n", err);
    if (rc == 0 && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0))
        rc = err_sys(err, "printing");
    buf_done(&out);
    return rc;
}

static int config_cmd_run(int argc, char **argv) {
    bool json = false, example = false;
    const struct opt more[] = {
        {"json", 0, NULL, OPT_FLAG, &json, 0, 0, "One JSON object, for programs"},
        {"example", 0, NULL, OPT_FLAG, &example, 0, 0,
         "A file for --config with every setting, its default and what it is for"},
        {0},
    };
    const struct config_command command = {
        .usage = "pinfold-server config [--json | --example] [OPTIONS]",
        .about = "Prints every setting of the server: its value, where the value comes from "
                 "(default, file or\nflag), its default and what it is for. Takes the options of "
                 "pinfold-server serve.",
        .more = more,
    };
    struct config config;
    struct err err;
    err_clear(&err);
    int rc = config_load(&config, &command, argc, argv, &err);
    int status = rc < 0 ? 2 : 0;
    if (rc == 0 && config_cmd_print(&config, json, example, &err) < 0)
        status = 1;
    if (status != 0)
        fprintf(stderr, "pinfold-server config: %s\n", err.text);
    config_done(&config);
    return status;
}

const struct subcommand config_cmd = {
    .name = "config",
    .about = "print every setting, its value and where that comes from",
    .run = config_cmd_run,
};

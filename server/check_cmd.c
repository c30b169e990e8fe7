#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "drop.h"
#include "subcommand.h"

void check_say(struct check *c, enum check_verdict verdict, const char *what, const char *fmt,
               ...) {
    static const char *const words[] = {"ok", "warning", "wrong"};
    va_list args;
    if (verdict == CHECK_FAIL)
        c->failed++;
    if (verdict == CHECK_WARN)
        c->warned++;
    if (verdict == CHECK_OK && c->quiet)
        return;
    printf("%-8s %-12s ", words[verdict], what);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf(".\n");
}

void check_err(struct check *c, enum check_verdict verdict, const char *what,
               const struct err *err) {
    check_say(c, verdict, what, "%s", err->text);
}

static void check_file(struct check *c) {
    const char *path = c->config->path;
    struct stat st;
    if (path == NULL) {
        check_say(c, CHECK_OK, "settings", "no file; defaults and flags only");
        return;
    }
    if (stat(path, &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        check_say(c, CHECK_WARN, "settings", "%s can be written by others; chmod go-w it", path);
    check_say(c, CHECK_OK, "settings", "%s", path);
}

/* First what only root can see, then, as the user that the server becomes, the rest. */
static void check_all(struct check *c) {
    struct err err;
    err_clear(&err);
    check_file(c);
    check_state(c);
    check_network(c);
    check_policies(c);
    if (!c->user_known)
        return;
    fflush(stdout);
    if (geteuid() == 0 && drop_privileges(&c->user, &err) < 0) {
        check_err(c, CHECK_FAIL, "user", &err);
        return;
    }
    check_network_as_user(c);
    check_state_as_user(c);
}

static void check_sum_up(const struct check *c) {
    if (c->failed > 0)
        printf("%u %s wrong: the server would not start, or serve nobody.\n", c->failed,
               c->failed == 1 ? "thing is" : "things are");
    else if (!c->quiet)
        printf("Nothing is wrong%s.\n", c->warned > 0 ? ", but see the warnings" : "");
}

static int check_run(int argc, char **argv) {
    struct check c = {.state = STATE_NONE};
    const struct opt more[] = {
        {"policies", 0, "DIR", OPT_STRING, &c.policies, 0, 0,
         "The runner's policies (STATE/policies if it is there, else /etc/pinfold/policies)"},
        {"quiet", 'q', NULL, OPT_FLAG, &c.quiet, 0, 0, "Print only what is wrong, and warnings"},
        {0},
    };
    const struct config_command command = {
        .usage = "pinfold-server check [--policies DIR] [--quiet] [OPTIONS]",
        .about = "Says what would be wrong if pinfold-server serve were started with the same "
                 "options: the\nsettings, the state directory, address and port, certificate and "
                 "key, the policies, the\ndatabase. Changes nothing. Exit code 0: nothing is "
                 "wrong; 1: something is; 2: bad options.\nAs root it sees most.",
        .more = more,
    };
    struct config config;
    struct err err;
    err_clear(&err);
    int status = 0, rc = config_load(&config, &command, argc, argv, &err);
    c.config = &config;
    if (rc == 0) {
        check_all(&c);
        check_sum_up(&c);
        status = c.failed > 0;
    } else if (rc < 0 && config.file_wrong) {
        check_err(&c, CHECK_FAIL, "settings", &err);
        check_sum_up(&c);
        status = 1;
    } else if (rc < 0) {
        fprintf(stderr, "pinfold-server check: %s\n", err.text);
        status = 2;
    }
    state_close(&c.state);
    config_done(&config);
    return status;
}

const struct subcommand check_cmd = {
    .name = "check",
    .about = "say what would be wrong with settings and state directory",
    .run = check_run,
};

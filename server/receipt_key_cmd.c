#include <stdio.h>
#include <string.h>

#include "audit_tool.h"
#include "fd.h"
#include "opt.h"
#include "receipt_key.h"
#include "subcommand.h"

static int receipt_key_cmd_print(const char *state, struct err *err) {
    struct receipt_key key;
    char hex[2 * RECEIPT_PUBLIC_SIZE + 1];
    fd_cleanup int dir = audit_tool_open(state, err);
    if (dir < 0 || receipt_key_load(dir, &key, err) < 0)
        return -1;
    receipt_hex(key.public.bytes, sizeof(key.public.bytes), hex);
    receipt_key_wipe(&key);
    printf("%s\n", hex);
    return 0;
}

static int receipt_key_cmd_run(int argc, char **argv) {
    const char *state = "/var/lib/pinfold";
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &state, 0, 0, "the state directory (/var/lib/pinfold)"},
        {0},
    };
    struct opt_result result;
    struct err err = {0};
    if (opt_parse(table, argc, argv, &result, &err) < 0 ||
        (!result.help && result.rest < argc &&
         err_set(&err, ERR_INVALID, 0, "unexpected argument %.80s", argv[result.rest]) < 0)) {
        fprintf(stderr, "pinfold-server receipt-key: %s\n", err.text);
        return 2;
    }
    if (result.help) {
        opt_help(
            stdout, "pinfold-server receipt-key [--state DIR]",
            "Prints the public key of the receipts, 64 hexadecimal digits. Give it to whoever\n"
            "checks receipts: pinfold receipt verify FILE --key HEX",
            table);
        return 0;
    }
    if (receipt_key_cmd_print(state, &err) < 0) {
        fprintf(stderr, "pinfold-server receipt-key: %s\n", err.text);
        return 1;
    }
    return 0;
}

const struct subcommand receipt_key_cmd = {.name = "receipt-key",
                                           .about = "print the public key of the receipts",
                                           .run = receipt_key_cmd_run};

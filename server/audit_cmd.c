#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit_tool.h"
#include "fd.h"
#include "json_memory.h"
#include "opt.h"
#include "receipt_key.h"
#include "subcommand.h"

#define AUDIT_CMD_EXPECT_MAX 256u
#define AUDIT_CMD_FILE_MAX ((size_t)64 * 1024 * 1024)

struct audit_cmd_options {
    const char *state, *key;
    struct opt_list expect, receipts;
    struct audit_show_options show;
    struct audit_prune_options prune;
};

struct audit_cmd_action {
    const char *name, *usage, *about;
    const struct opt *table;
    int (*run)(const struct audit_cmd_options *o, int dir, struct err *err); /* exit status or -1 */
};

/* verify */

static void audit_cmd_problem(void *arg, const char *sentence) {
    (void)arg;
    printf("%s\n", sentence);
}

/* The key is that of the state directory, or what --key says: 64 digits or a file with them. */
static int audit_cmd_key(const struct audit_cmd_options *o, int dir, struct receipt_public *out,
                         struct err *err) {
    struct receipt_key own;
    struct buf text;
    if (o->key == NULL) {
        if (receipt_key_load(dir, &own, err) < 0)
            return -1;
        *out = own.public;
        receipt_key_wipe(&own);
        return 0;
    }
    if (receipt_key_parse(o->key, strlen(o->key), out, NULL) == 0)
        return 0;
    buf_init(&text, 4096);
    int rc = fd_read_file(AT_FDCWD, o->key, &text, err);
    if (rc == 0)
        rc = receipt_key_parse(text.data != NULL ? text.data : "", text.len, out, err);
    buf_done(&text);
    return rc;
}

static int audit_cmd_expect_hash(const char *text, struct audit_verify_expect *e, struct err *err) {
    const char *colon = strrchr(text, ':');
    if (receipt_unhex(colon != NULL ? colon + 1 : text, e->hash, sizeof(e->hash)) == 0)
        return 0;
    return err_set(err, ERR_INVALID, 0, "--expect-head takes 64 hexadecimal digits, not %.80s",
                   text);
}

/* A receipt, or the answer that holds it, names the record that accepted its run. */
static int audit_cmd_expect_receipt(const char *path, const struct receipt_public *key,
                                    struct audit_verify_expect *e, struct err *err) {
    struct buf text;
    buf_init(&text, AUDIT_CMD_FILE_MAX);
    int rc = fd_read_file(AT_FDCWD, path, &text, err);
    json_t *root =
        rc == 0 ? json_memory_load(text.data != NULL ? text.data : "", text.len, 0, NULL) : NULL;
    const json_t *receipt = json_object_get(root, "receipt");
    receipt = receipt != NULL ? receipt : root;
    if (rc == 0)
        rc = receipt_check(receipt, key, err);
    const json_t *audit = json_object_get(json_object_get(receipt, "body"), "audit");
    if (rc == 0 && receipt_unhex(json_string_value(json_object_get(audit, "hash")), e->hash,
                                 sizeof(e->hash)) < 0)
        rc = err_set(err, ERR_INVALID, 0, "the receipt names no record of an audit log");
    json_decref(root);
    buf_done(&text);
    return rc < 0 ? err_wrap(err, "%s", path) : 0;
}

static int audit_cmd_expect(const struct audit_cmd_options *o, const struct receipt_public *key,
                            struct audit_verify_expect *expect, size_t *count, struct err *err) {
    size_t n = 0;
    if (o->expect.count + o->receipts.count > AUDIT_CMD_EXPECT_MAX)
        return err_set(err, ERR_INVALID, 0, "at most %u heads and receipts can be expected at once",
                       AUDIT_CMD_EXPECT_MAX);
    for (size_t i = 0; i < o->expect.count; i++)
        if (audit_cmd_expect_hash(o->expect.item[i], &expect[n++], err) < 0)
            return -1;
    for (size_t i = 0; i < o->receipts.count; i++)
        if (audit_cmd_expect_receipt(o->receipts.item[i], key, &expect[n++], err) < 0)
            return -1;
    *count = n;
    return 0;
}

static uint64_t audit_cmd_say_expected(const struct audit_cmd_options *o,
                                       const struct audit_verify_expect *expect, size_t count) {
    uint64_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        bool head = i < o->expect.count;
        if (expect[i].found)
            continue;
        missing++;
        printf(head ? "the record with the hash %s is not there: the log was cut or written anew.\n"
                    : "the record that the receipt %s names is not there: the log was cut or "
                      "written anew.\n",
               head ? o->expect.item[i] : o->receipts.item[i - o->expect.count]);
    }
    return missing;
}

static int audit_cmd_report(const struct audit_verify v[2], uint64_t problems) {
    if (problems > 0) {
        printf("the audit log is NOT sound: %" PRIu64 " problem%s\n", problems,
               problems == 1 ? "" : "s");
        return 1;
    }
    printf("the audit log is sound: records %" PRIu64 " to %" PRIu64 " in %" PRIu64
           " files, %" PRIu64 " signed checkpoints; %" PRIu64 " records of commands\n",
           v[0].first, v[0].last.seq, v[0].segments, v[0].checkpoints, v[1].records);
    return 0;
}

static int audit_cmd_verify(const struct audit_cmd_options *o, int dir, struct err *err) {
    struct audit_verify_expect *expect = calloc(AUDIT_CMD_EXPECT_MAX, sizeof(*expect));
    struct audit_verify *v = calloc(2, sizeof(*v));
    struct receipt_public key;
    size_t count = 0;
    int rc = -1;
    if (expect == NULL || v == NULL) {
        err_set(err, ERR_SYSTEM, 0, "out of memory");
    } else if (audit_cmd_key(o, dir, &key, err) == 0 &&
               audit_cmd_expect(o, &key, expect, &count, err) == 0) {
        v[0].key = &key;
        v[0].problem = audit_cmd_problem;
        v[0].expect = expect;
        v[0].expect_count = count;
        rc = audit_tool_verify(v, dir, err);
        if (rc == 0)
            rc = audit_cmd_report(v, v[0].problems + v[1].problems +
                                         audit_cmd_say_expected(o, expect, count));
    }
    free(expect);
    free(v);
    return rc;
}

/* head, show, prune */

static int audit_cmd_head(const struct audit_cmd_options *o, int dir, struct err *err) {
    static const char *const chains[] = {AUDIT_LOG_SERVER, AUDIT_LOG_COMMANDS};
    (void)o;
    for (size_t i = 0; i < 2; i++) {
        struct audit_log_head head;
        char hex[65];
        int rc = audit_log_head_read(dir, chains[i], &head, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        receipt_hex(head.mark.hash, sizeof(head.mark.hash), hex);
        printf("%s %s %" PRIu64 "\n", hex, chains[i], head.mark.seq);
    }
    return 0;
}

static int audit_cmd_show(const struct audit_cmd_options *o, int dir, struct err *err) {
    return audit_show(dir, &o->show, err);
}

static int audit_cmd_prune(const struct audit_cmd_options *o, int dir, struct err *err) {
    if (o->prune.days == UINT64_MAX)
        return err_set(err, ERR_INVALID, 0, "say how old: --older-than DAYS");
    return audit_prune(dir, &o->prune, err);
}

static void audit_cmd_help(FILE *out) {
    fputs("usage: pinfold-server audit verify|show|head|prune [--state DIR] [OPTIONS]\n\n"
          "  verify  check that nothing was edited, cut, moved or put in; exit status 0 or 1\n"
          "  show    print records, for people or (--json) as they are\n"
          "  head    print the newest signed place of each chain, to be kept elsewhere\n"
          "  prune   remove old files of the log; a signed record of that stays\n\n"
          "pinfold-server audit verify --help explains an action.\n",
          out);
}

static int audit_cmd_do(const struct audit_cmd_action *a, const struct audit_cmd_options *o,
                        int argc, char **argv) {
    struct opt_result result;
    struct err err = {0};
    char usage[160];
    if (opt_parse(a->table, argc, argv, &result, &err) < 0 ||
        (!result.help && result.rest < argc &&
         err_set(&err, ERR_INVALID, 0, "unexpected argument %.80s", argv[result.rest]) < 0)) {
        fprintf(stderr, "pinfold-server audit %s: %s\n", a->name, err.text);
        return 2;
    }
    if (result.help) {
        snprintf(usage, sizeof(usage), "pinfold-server audit %s%s%s", a->name,
                 *a->usage != '\0' ? " " : "", a->usage);
        opt_help(stdout, usage, a->about, a->table);
        return 0;
    }
    fd_cleanup int dir = audit_tool_open(o->state, &err);
    int rc = dir < 0 ? -1 : a->run(o, dir, &err);
    if (rc < 0)
        fprintf(stderr, "pinfold-server audit %s: %s\n", a->name, err.text);
    return rc < 0 ? 1 : rc;
}

static int audit_cmd_run(int argc, char **argv) {
    struct audit_cmd_options o = {.state = "/var/lib/pinfold", .prune.days = UINT64_MAX};
    const struct opt state = {"state",  0, "DIR", OPT_STRING,
                              &o.state, 0, 0,     "the state directory (/var/lib/pinfold)"};
    const struct opt verify[] = {
        state,
        {"key", 0, "HEX|FILE", OPT_STRING, &o.key, 0, 0,
         "the server's public key, when it is not to be taken from the state directory"},
        {"expect-head", 0, "HASH", OPT_LIST, &o.expect, 0, 0,
         "a record with this hash must be there (as `audit head` printed it earlier)"},
        {"receipt", 0, "FILE", OPT_LIST, &o.receipts, 0, 0,
         "the record that this receipt (or answer of a run) names must be there"},
        {0}};
    const struct opt show[] = {
        state,
        {"user", 0, "NAME", OPT_STRING, &o.show.user, 0, 0, "only what this user did"},
        {"since", 0, "TIME", OPT_STRING, &o.show.since, 0, 0,
         "only from then on: 2026-01-31, 2026-01-31T12:00:00Z, or 90m ago"},
        {"type", 0, "TYPE", OPT_STRING, &o.show.type, 0, 0, "accepted, ended, denied, command, …"},
        {"id", 0, "ID", OPT_STRING, &o.show.id, 0, 0, "only of this run, sandbox, …"},
        {"json", 0, NULL, OPT_FLAG, &o.show.json, 0, 0, "the records as they are in the log"},
        {0}};
    const struct opt head[] = {state, {0}};
    const struct opt prune[] = {
        state,
        {"older-than", 0, "DAYS", OPT_U64, &o.prune.days, 0, 36500,
         "remove files whose newest record is older"},
        {"to", 0, "DIR", OPT_STRING, &o.prune.to, 0, 0, "copy them there first"},
        {0}};
    const struct audit_cmd_action actions[] = {
        {"verify", "[OPTIONS]",
         "Checks both chains of the audit log: \"log\" of the server and \"cmd\" of commands like\n"
         "this one. Each problem is one line: which record of which file, and what is wrong.\n"
         "Exit status: 0 sound, 1 not sound (or not readable), 2 wrong usage.\n\n"
         "Who can write the state directory and read its key can forge all of it, so keep heads\n"
         "elsewhere:\n"
         "  pinfold-server audit head >> heads-on-another-machine\n"
         "  pinfold-server audit verify --expect-head HASH",
         verify, audit_cmd_verify},
        {"show", "[OPTIONS]", "Prints the records of both chains by time.", show, audit_cmd_show},
        {"head", "", "Prints HASH CHAIN NUMBER of the newest record that is on disk, per chain.",
         head, audit_cmd_head},
        {"prune", "--older-than DAYS [--to DIR]",
         "Removes whole files of the server's chain, never the newest, and only when the log is\n"
         "sound. What was removed is recorded and signed, so that verify can tell it from a cut.",
         prune, audit_cmd_prune},
    };
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].name, name) == 0)
            return audit_cmd_do(&actions[i], &o, argc - 1, argv + 1);
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    audit_cmd_help(help ? stdout : stderr);
    return help ? 0 : 2;
}

const struct subcommand audit_cmd = {
    .name = "audit", .about = "check, show and prune the audit log", .run = audit_cmd_run};

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client_cmd.h"
#include "fd.h"
#include "local_file.h"
#include "print.h"
#include "receipt_known.h"
#include "receipt_match.h"
#include "receipt_tree.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"

#define RECEIPT_CMD_FILE_MAX ((size_t)512 * 1024 * 1024)
#define RECEIPT_CMD_PATH_SIZE 256

struct receipt_cmd_options {
    const char *key, *files;
    bool json;
};

/* What verify found. */
struct receipt_cmd_verdict {
    const json_t *answer;  /* NULL = the file holds the receipt alone */
    const json_t *receipt; /* NULL = none */
    bool signature;
    char why[400]; /* the signature does not hold */
    struct receipt_match shown, files;
};

static int receipt_cmd_key(const char *text, struct receipt_public *out, struct err *err) {
    if (text == NULL)
        return err_set(err, ERR_INVALID, 0,
                       "which key? --key HEX|FILE (the administrator has it: pinfold-server "
                       "receipt-key; a key from the same place as the receipt proves nothing)");
    return receipt_known_read(text, out, err) < 0 ? err_wrap(err, "--key") : 0;
}

static json_t *receipt_cmd_load(const char *path, struct err *err) {
    struct buf text;
    json_error_t where;
    json_t *root = NULL;
    int rc;

    buf_init(&text, RECEIPT_CMD_FILE_MAX);
    rc = strcmp(path, "-") == 0 ? local_file_read_fd(STDIN_FILENO, "standard input", &text, err)
                                : local_file_read(path, &text, NULL, err);
    if (rc == 0) {
        root = json_loadb(text.data != NULL ? text.data : "", text.len,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
        if (root == NULL)
            err_set(err, ERR_INVALID, 0, "%.200s is not JSON (line %d): %.100s", path, where.line,
                    where.text);
    }
    buf_done(&text);
    return root;
}

static void receipt_cmd_check(struct receipt_cmd_verdict *v, const json_t *root,
                              const struct receipt_cmd_options *o,
                              const struct receipt_public *key) {
    struct err err = {0};
    const json_t *inside = json_object_get(root, "receipt");

    receipt_match_init(&v->shown);
    receipt_match_init(&v->files);
    v->receipt = inside != NULL ? inside : root;
    v->answer = inside != NULL ? root : NULL;
    v->signature = receipt_check(v->receipt, key, &err) == 0;
    str_copy(v->why, sizeof(v->why), err.text);
    /* What is not signed says nothing. */
    if (!v->signature)
        return;
    if (v->answer != NULL)
        receipt_match_answer(&v->shown, v->answer, json_object_get(v->receipt, "body"));
    if (o->files != NULL)
        receipt_tree_check(&v->files, o->files, json_object_get(v->receipt, "body"));
}

/* For people. */

static void receipt_cmd_put(const char *before, const char *text, const char *after) {
    char clean[1024];

    printf("%s%s%s", before, say_clean(clean, sizeof(clean), text != NULL ? text : "?"), after);
}

static void receipt_cmd_time(const char *what, const json_t *value) {
    time_t seconds = (time_t)(json_integer_value(value) / 1000);
    char text[32] = "?";
    struct tm tm;

    if (gmtime_r(&seconds, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    printf("%s%s", what, text);
}

/* What was run must not read like something else: each argument by itself, in quotes unless it is
 * plain, and all of it, however long. */
static void receipt_cmd_word(const json_t *word, bool blanks) {
    const char *text = json_string_value(word);
    bool plain = text != NULL && json_string_length(word) == strlen(text) && text[0] != '\0';

    for (const char *c = text; plain && *c != '\0'; c++)
        plain = (*c > 0x20 && *c < 0x7f && (blanks || strchr("'\"\\`$&|;<>()#", *c) == NULL)) ||
                (blanks && *c == ' ');
    if (plain) {
        fputs(text, stdout);
        return;
    }
    char *quoted = json_dumps(word, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    fputs(quoted != NULL ? quoted : "?", stdout);
    free(quoted);
}

static void receipt_cmd_command(const json_t *step) {
    const json_t *argv = json_object_get(step, "argv"), *sh = json_object_get(step, "sh");
    size_t i;
    json_t *arg;

    if (json_is_string(sh)) {
        fputs("sh: ", stdout);
        receipt_cmd_word(sh, true);
    } else if (json_is_array(argv)) {
        json_array_foreach((json_t *)(uintptr_t)argv, i, arg) {
            fputs(i == 0 ? "" : " ", stdout);
            receipt_cmd_word(arg, false);
        }
    } else {
        const char *digest = json_string_value(json_object_get(step, "argv_sha256"));
        if (digest == NULL)
            digest = json_string_value(json_object_get(step, "sh_sha256"));
        receipt_cmd_put("a long command with the digest ", digest, "");
    }
}

static void receipt_cmd_step(size_t index, const json_t *step) {
    const json_t *end = json_object_get(step, "end");
    const char *name = json_string_value(json_object_get(step, "name"));

    printf("  step %zu, ", index + 1);
    receipt_cmd_put("", name, ": ");
    receipt_cmd_command(step);
    if (end == NULL) {
        printf("\n    was skipped\n");
        return;
    }
    receipt_cmd_put("\n    ended by ", json_string_value(json_object_get(end, "cause")), "");
    if (json_is_integer(json_object_get(end, "exit_code")))
        printf(", exit code %" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(end, "exit_code")));
    if (json_is_integer(json_object_get(end, "signal")))
        printf(", signal %" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(end, "signal")));
    printf("; wrote %" JSON_INTEGER_FORMAT " bytes to stdout, %" JSON_INTEGER_FORMAT " to stderr\n",
           json_integer_value(json_object_get(json_object_get(step, "stdout"), "bytes")),
           json_integer_value(json_object_get(json_object_get(step, "stderr"), "bytes")));
}

/* Of an execution: what it found in its sandbox; of a run: what came with it. */
static void receipt_cmd_files(const json_t *body) {
    const json_t *in = json_object_get(body, "files_in"), *out = json_object_get(body, "files_out");
    json_int_t others = json_integer_value(json_object_get(in, "others"));

    if (json_object_get(body, "sandbox") == NULL) {
        printf("  with %" JSON_INTEGER_FORMAT " files in, %" JSON_INTEGER_FORMAT " out\n",
               json_integer_value(json_object_get(in, "count")),
               json_integer_value(json_object_get(out, "count")));
        return;
    }
    if (in == NULL) {
        printf("  on files that the receipt does not name\n");
        return;
    }
    printf("  on %" JSON_INTEGER_FORMAT " files", json_integer_value(json_object_get(in, "count")));
    receipt_cmd_put(" in ", json_string_value(json_object_get(in, "root")), "");
    receipt_cmd_put(" (sha256 ", json_string_value(json_object_get(in, "sha256")), "), ");
    if (others == 0)
        printf("exactly as they were sent\n");
    else
        printf("which %" JSON_INTEGER_FORMAT " other commands or writes may have changed\n",
               others);
}

static void receipt_cmd_body(const json_t *body) {
    const json_t *policy = json_object_get(body, "policy");
    const char *sandbox = json_string_value(json_object_get(body, "sandbox"));
    size_t i;
    json_t *step;

    receipt_cmd_put(sandbox != NULL ? "  the execution " : "  the run ",
                    json_string_value(json_object_get(body, "id")), "");
    if (sandbox != NULL)
        receipt_cmd_put(" in the sandbox ", sandbox, "");
    receipt_cmd_put(" of user ", json_string_value(json_object_get(body, "user")), "");
    receipt_cmd_time(", accepted ", json_object_get(body, "created_at"));
    receipt_cmd_time(", over ", json_object_get(body, "ended_at"));
    receipt_cmd_put(" (the server's clock)\n  under the policy ",
                    json_string_value(json_object_get(policy, "name")), "");
    receipt_cmd_put(" (sha256 ", json_string_value(json_object_get(policy, "sha256")), ")");
    receipt_cmd_put(" in the image ",
                    json_string_value(json_object_get(json_object_get(body, "image"), "name")), "");
    receipt_cmd_put(", network ", json_string_value(json_object_get(body, "network")), "\n");
    receipt_cmd_files(body);
    json_array_foreach(json_object_get(body, "steps"), i, step) receipt_cmd_step(i, step);
    printf("  verdict: %s\n",
           json_integer_value(json_object_get(body, "ok")) == 1 ? "ok" : "not ok");
}

static void receipt_cmd_lines(const char *text) {
    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, "\n");
        char line[1100], clean[1100];
        snprintf(line, sizeof(line), "%.*s", (int)len, text);
        printf("  %s\n", say_clean(clean, sizeof(clean), line));
        text += len + (text[len] == '\n');
    }
}

static void receipt_cmd_tell(const struct receipt_cmd_verdict *v,
                             const struct receipt_cmd_options *o) {
    if (!v->signature) {
        receipt_cmd_put("NOT proven: ", v->why, "\n");
        return;
    }
    printf("The signature is valid. Whoever holds that key says:\n");
    receipt_cmd_body(json_object_get(v->receipt, "body"));
    if (v->answer != NULL && v->shown.count == 0)
        printf("The answer in this file shows the same: ends, usage, outputs, files, limits, "
               "policy.\n");
    if (v->shown.count > 0) {
        printf("NOT proven: the answer in this file was changed, it is not what was signed:\n");
        receipt_cmd_lines(v->shown.text.data);
    }
    if (o->files != NULL && v->files.count == 0)
        printf("The files in %s are those that went in.\n", o->files);
    if (v->files.count > 0) {
        printf("NOT proven: the files are not those that went in:\n");
        receipt_cmd_lines(v->files.text.data);
    }
    printf("Not covered: whether the server is honest and its clock right; what the values of the\n"
           "environment and stdin were (only their digests are signed)%s.\n",
           v->answer != NULL ? ";\ntiming, label, trace and the words of messages in the answer"
                             : "");
}

/* For programs. */

static json_t *receipt_cmd_list(const struct receipt_match *m) {
    json_t *list = json_array();
    const char *text = m->text.data;

    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, "\n");
        json_array_append_new(list, json_stringn_nocheck(text, len));
        text += len + (text[len] == '\n');
    }
    return list;
}

static void receipt_cmd_json(const struct receipt_cmd_verdict *v,
                             const struct receipt_cmd_options *o, bool proven) {
    json_t *out = json_pack("{s:b, s:b}", "proven", proven, "signature", v->signature);

    if (!v->signature)
        json_object_set_new(out, "why", json_string_nocheck(v->why));
    if (v->signature)
        json_object_set(out, "body", json_object_get(v->receipt, "body"));
    if (v->signature && v->answer != NULL)
        json_object_set_new(out, "answer_differs", receipt_cmd_list(&v->shown));
    if (v->signature && o->files != NULL)
        json_object_set_new(out, "files_differ", receipt_cmd_list(&v->files));
    print_json(out, JSON_INDENT(2));
    json_decref(out);
}

static int receipt_cmd_verify(const char *path, const struct receipt_cmd_options *o) {
    struct receipt_cmd_verdict v = {0};
    struct receipt_public key;
    struct err err = {0};
    json_t *root;

    if (sodium_init() < 0 || receipt_cmd_key(o->key, &key, &err) < 0) {
        say_line("receipt: %s", err.text);
        return CLIENT_EXIT_USAGE;
    }
    root = receipt_cmd_load(path, &err);
    if (root == NULL) {
        say_line("receipt: %s", err.text);
        return CLIENT_EXIT_TROUBLE;
    }
    receipt_cmd_check(&v, root, o, &key);
    bool proven = v.signature && v.shown.count == 0 && v.files.count == 0;
    if (o->json)
        receipt_cmd_json(&v, o, proven);
    else
        receipt_cmd_tell(&v, o);
    receipt_match_done(&v.shown);
    receipt_match_done(&v.files);
    json_decref(root);
    return proven ? 0 : 1;
}

/* get */

/* "run_…", or "sb_…/ex_…". */
static int receipt_cmd_path(const char *id, char path[RECEIPT_CMD_PATH_SIZE], struct err *err) {
    const char *slash = strchr(id, '/');
    char sandbox[80];
    int n = -1;

    if (slash == NULL && str_is_name(id))
        n = snprintf(path, RECEIPT_CMD_PATH_SIZE, "/v1/runs/%s", id);
    if (slash != NULL && (size_t)(slash - id) < sizeof(sandbox)) {
        snprintf(sandbox, sizeof(sandbox), "%.*s", (int)(slash - id), id);
        if (str_is_name(sandbox) && str_is_name(slash + 1))
            n = snprintf(path, RECEIPT_CMD_PATH_SIZE, "/v1/sandboxes/%s/exec/%s/receipt", sandbox,
                         slash + 1);
    }
    if (n < 0 || n >= RECEIPT_CMD_PATH_SIZE)
        return err_set(err, ERR_INVALID, 0,
                       "that is not the id of a run, nor of a sandbox and an execution in it "
                       "(sb_.../ex_...)");
    return 0;
}

static int receipt_cmd_get(struct rest *rest, int argc, char **argv, const void *options,
                           struct err *err) {
    const char *id = argv[0];
    char path[RECEIPT_CMD_PATH_SIZE];
    json_t *answer, *receipt;
    int rc = 0;

    (void)argc;
    (void)options;
    if (receipt_cmd_path(id, path, err) < 0)
        return -1;
    answer = rest_get_json(rest, path, RECEIPT_CMD_FILE_MAX, err);
    if (answer == NULL)
        return -1;
    receipt = strchr(id, '/') != NULL ? answer : json_object_get(answer, "receipt");
    if (receipt == NULL)
        rc = err_set(err, ERR_STATE, 0, "the run has no receipt: is it over?");
    else if (json_dumpf(receipt, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF)
        rc = err_set(err, ERR_SYSTEM, 0, "cannot write the receipt");
    json_decref(answer);
    return rc;
}

static int receipt_cmd_run(int argc, char **argv) {
    struct receipt_cmd_options o = {0};
    const struct opt table[] = {
        {"key", 0, "HEX|FILE", OPT_STRING, &o.key, 0, 0,
         "verify: the server's public key, from somebody you trust"},
        {"files", 0, "DIR", OPT_STRING, &o.files, 0, 0,
         "verify: check that DIR holds the files that went in"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "verify: one JSON object"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "receipt",
        .usage = "pinfold receipt verify FILE|- --key HEX|FILE [--files DIR] [--json]\n"
                 "pinfold receipt get RUN|SANDBOX/EXECUTION",
        .about =
            "Checks the receipt of a run without any server, and says what it proves. FILE is "
            "the\nanswer of a run (pinfold run --json, pinfold runs show) or the receipt "
            "alone.\nget prints the receipt of one of your runs, or of a command in one of your\n"
            "sandboxes. pinfold agent keeps that of its verifier and says where.\n\n"
            "Exit status of verify: 0 proven; 1 not proven: another key, a changed receipt, or\n"
            "an answer or files that are not what was signed; 2 wrong usage; 125 the file\n"
            "cannot be read.\n\n"
            "Example:\n"
            "  pinfold run --json -c 'make test' > result.json\n"
            "  pinfold receipt verify result.json --key server.pub",
        .table = table,
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    if (strcmp(argv[first], "verify") == 0)
        return receipt_cmd_verify(argv[first + 1], &o);
    if (strcmp(argv[first], "get") == 0)
        return simple_cmd_run(receipt_cmd_get, 1, argv + first + 1, NULL);
    say_line("receipt: expected verify FILE or get RUN|SANDBOX/EXECUTION");
    return CLIENT_EXIT_USAGE;
}

const struct client_cmd receipt_cmd = {
    .name = "receipt",
    .about = "check what a run's receipt proves, offline",
    .run = receipt_cmd_run,
};

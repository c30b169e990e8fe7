#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_cmd.h"
#include "say.h"
#include "simple_cmd.h"
#include "table.h"

#define DOCTOR_ANSWER_MAX ((size_t)4 * 1024 * 1024)

static const char *doctor_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static bool doctor_is_enforced(const json_t *capability) {
    const char *status = doctor_text(capability, "status");

    return status != NULL && strcmp(status, "enforced") == 0;
}

static int doctor_table(const json_t *list) {
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    json_t *c;

    if (rows == NULL)
        return -1;
    rows[0] = (struct table_row){{"NAME", "STATUS", "HOW", "PROOF"}};
    json_array_foreach((json_t *)(uintptr_t)list, i, c) rows[i + 1] =
        (struct table_row){{doctor_text(c, "name"), doctor_text(c, "status"), doctor_text(c, "how"),
                            doctor_text(c, "proof")}};
    table_print(stdout, rows, count + 1, 4);
    free(rows);
    return 0;
}

/* What to do about each that is missing. -> number of required ones among them; *accepted: of those
 * that the runner was started without. */
static size_t doctor_advise(const json_t *list, size_t *accepted) {
    size_t missing = 0, i;
    json_t *c;

    json_array_foreach((json_t *)(uintptr_t)list, i, c) {
        const char *name = doctor_text(c, "name"), *remedy = doctor_text(c, "remedy");
        bool required = !json_is_false(json_object_get(c, "required"));

        if (doctor_is_enforced(c))
            continue;
        bool known = json_is_true(json_object_get(c, "accepted"));
        missing += required;
        *accepted += known;
        printf("%s: ", required ? "missing"
                       : known  ? "NOT ENFORCED (accepted where the runner was started)"
                                : "not available (optional)");
        say_put(stdout, name != NULL ? name : "?");
        fputs(": ", stdout);
        say_put(stdout, remedy != NULL ? remedy : "the server knows no remedy");
        putchar('\n');
    }
    return missing;
}

/* Can it be reached, does it know us, would it run something? Prints a line for each. */
static int doctor_check_server(struct rest *rest, const struct target *target) {
    struct rest_call alive = {.method = "GET", .path = "/healthz"};
    struct rest_call me = {.method = "GET", .path = "/v1/me"};
    struct rest_call ready = {.method = "GET", .path = "/readyz"};
    struct err err = {0};

    printf("server  %s  ", target->url);
    if (rest_perform(rest, &alive, &err) < 0 ||
        (alive.status >= 400 && rest_refusal(&alive, &err) < 0)) {
        puts("not reachable");
        fflush(stdout);
        say_line("%s", err.text);
        return -1;
    }
    puts("reachable");
    printf("token   %s  ",
           target->token[0] != '\0' ? "from PINFOLD_TOKEN" : "none (PINFOLD_TOKEN)");
    fflush(stdout);
    if (rest_perform(rest, &me, &err) < 0) {
        puts("not checked");
        fflush(stdout);
        say_line("%s", err.text);
        return -1;
    }
    puts(me.status == 401 || me.status == 403 ? "refused" : "accepted");
    if (me.status == 401 || me.status == 403) {
        rest_refusal(&me, &err);
        fflush(stdout);
        say_line("%s", err.text);
        return -1;
    }
    if (rest_perform(rest, &ready, &err) < 0 ||
        (ready.status >= 400 && rest_refusal(&ready, &err) < 0)) {
        puts("ready   no");
        fflush(stdout);
        say_line("%s", err.text);
        return 1;
    }
    puts("ready   yes");
    return 0;
}

static int doctor_do(struct rest *rest, const struct target *target) {
    struct err err = {0};
    int rc = doctor_check_server(rest, target);
    json_t *answer, *list;
    size_t missing, accepted = 0;

    if (rc < 0)
        return 1;
    answer = rest_get_json(rest, "/v1/capabilities", DOCTOR_ANSWER_MAX, &err);
    list = json_object_get(answer, "capabilities");
    if (!json_is_array(list)) {
        say_line("%s", answer == NULL ? err.text : "the server named no capabilities");
        json_decref(answer);
        return 1;
    }
    putchar('\n');
    if (doctor_table(list) < 0) {
        json_decref(answer);
        say_line("no memory for the table");
        return 1;
    }
    putchar('\n');
    missing = doctor_advise(list, &accepted);
    if (missing == 0)
        puts(accepted == 0 ? "Everything that is required is enforced."
                           : "Everything else that is required is enforced.");
    json_decref(answer);
    return missing > 0 || rc != 0 ? 1 : 0;
}

static int doctor_run(int argc, char **argv) {
    static const struct simple_cmd cmd = {
        .name = "doctor",
        .usage = "pinfold doctor",
        .about =
            "Is the server there, does it accept the token, and what can it enforce? Shows each\n"
            "limit and each layer of isolation with how it is enforced and the proof that was\n"
            "tried when the server started, and what to do about each that is missing.\n"
            "Exit status 1 when something that is required is missing.\n\n"
            "Example:\n"
            "  pinfold doctor || echo 'do not run strangers here'",
    };
    struct target target = {0};
    struct rest *rest;
    int first, code = 1, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    rest = simple_cmd_connect(&target);
    if (rest != NULL)
        code = doctor_do(rest, &target);
    rest_free(rest);
    target_done(&target);
    return code;
}

const struct client_cmd doctor_cmd = {
    .name = "doctor",
    .about = "what the server can enforce, and what is missing",
    .run = doctor_run,
};

#include "sandbox_api.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client_exit.h"
#include "print.h"
#include "say.h"
#include "str.h"

int sandbox_api_check(const char *id, const char *what, struct err *err) {
    if (!str_is_name(id))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of %s", id, what);
    return 0;
}

int sandbox_api_path(char *dst, size_t size, const char *id, const char *more, struct err *err) {
    if (sandbox_api_check(id, "a sandbox", err) < 0)
        return -1;
    snprintf(dst, size, "/v1/sandboxes/%s%s", id, more);
    return 0;
}

int sandbox_api_exec_path(char *dst, size_t size, const char *const ids[2], const char *more,
                          struct err *err) {
    if (sandbox_api_check(ids[0], "a sandbox", err) < 0 ||
        sandbox_api_check(ids[1], "an execution", err) < 0)
        return -1;
    snprintf(dst, size, "/v1/sandboxes/%s/exec/%s%s", ids[0], ids[1], more);
    return 0;
}

struct json_t *sandbox_api_call(struct rest *rest, const char *method, const char *path,
                                struct json_t *body, struct err *err) {
    json_t *answer = rest_json(rest, method, path, body, SANDBOX_API_ANSWER_MAX, err);

    json_decref(body);
    return answer;
}

void sandbox_api_print(const struct json_t *object) {
    print_json(object, JSON_COMPACT | JSON_ENCODE_ANY);
}

int sandbox_api_print_id(const struct json_t *object, struct err *err) {
    const char *id = json_string_value(json_object_get(object, "id"));

    if (id == NULL || !str_is_name(id))
        return err_set(err, ERR_PROTOCOL, 0, "the server's answer has no id");
    puts(id);
    return 0;
}

const char *sandbox_api_policy(const struct json_t *sandbox) {
    const json_t *policy = json_object_get(sandbox, "policy");

    return json_string_value(json_is_object(policy) ? json_object_get(policy, "name") : policy);
}

void sandbox_api_time(const struct json_t *value, char *dst, size_t size) {
    time_t seconds = (time_t)(json_integer_value(value) / 1000);
    struct tm tm;

    snprintf(dst, size, "-");
    if (json_is_integer(value) && gmtime_r(&seconds, &tm) != NULL)
        strftime(dst, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

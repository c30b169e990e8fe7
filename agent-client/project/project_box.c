#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "project.h"
#include "sandbox_api.h"

/* It lives while it is used, and some hours more: an agent's pause, a night. */
#define PROJECT_BOX_IDLE_MS ((json_int_t)8 * 3600 * 1000)
#define PROJECT_BOX_TTL_MS ((json_int_t)7 * 24 * 3600 * 1000)

/* What is more than it can hold need not be read here, nor be sent. */
static void project_box_room(struct project *p, const json_t *answer) {
    json_int_t bytes = json_integer_value(
        json_object_get(json_object_get(json_object_get(answer, "limits"), "disk_bytes"), "value"));
    p->room = bytes > 0 ? (uint64_t)bytes : 0;
}

/* 1 = it is there, 0 = it is gone, -1. */
static int project_box_look(struct project *p, struct err *err) {
    char path[160];
    struct err why = {0};
    if (p->sandbox[0] == '\0' || sandbox_api_path(path, sizeof(path), p->sandbox, "", &why) < 0)
        return 0;
    json_t *answer = rest_get_json(p->rest, path, SANDBOX_API_ANSWER_MAX, &why);
    if (answer == NULL && (why.code == 404 || why.code == 410))
        return 0;
    if (answer == NULL) {
        *err = why;
        return -1;
    }
    const char *state = json_string_value(json_object_get(answer, "state"));
    bool gone = state == NULL || strcmp(state, "gone") == 0;
    bool paused = state != NULL && strcmp(state, "paused") == 0;
    if (!gone)
        project_box_room(p, answer);
    json_decref(answer);
    if (gone)
        return 0;
    if (paused) {
        if (sandbox_api_path(path, sizeof(path), p->sandbox, "/resume", err) < 0)
            return -1;
        answer = sandbox_api_call(p->rest, "POST", path, NULL, err);
        json_decref(answer);
        return answer == NULL ? -1 : 1;
    }
    return 1;
}

static int project_box_new(struct project *p, json_int_t ttl_ms, json_int_t idle_ms,
                           char to[PROJECT_SANDBOX_MAX], struct err *err) {
    const char *base = strrchr(p->path, '/');
    json_t *body = json_pack("{s:I, s:I, s:{s:s}}", "ttl_ms", ttl_ms, "idle_ms", idle_ms,
                             "metadata", "workspace", base + 1);
    if (body == NULL)
        return err_set(err, ERR_INVALID, 0, "the name of the workspace is not UTF-8");
    if (p->options.policy != NULL)
        json_object_set_new(body, "policy", json_string(p->options.policy));
    if (p->options.image != NULL)
        json_object_set_new(body, "image", json_string(p->options.image));
    json_t *answer = sandbox_api_call(p->rest, "POST", "/v1/sandboxes", body, err);
    const char *id = json_string_value(json_object_get(answer, "id"));
    int rc = 0;
    if (answer == NULL)
        rc = -1;
    else if (id == NULL || strlen(id) >= PROJECT_SANDBOX_MAX ||
             sandbox_api_check(id, "a sandbox", err) < 0)
        rc = err_set(err, ERR_PROTOCOL, 0, "the server's answer names no sandbox");
    else
        memcpy(to, id, strlen(id) + 1);
    if (rc == 0)
        project_box_room(p, answer);
    json_decref(answer);
    return rc;
}

int project_box_fresh(struct project *p, uint64_t ms, char id[PROJECT_SANDBOX_MAX],
                      struct err *err) {
    json_int_t ttl = ms < (uint64_t)PROJECT_BOX_TTL_MS ? (json_int_t)ms : PROJECT_BOX_TTL_MS;
    return project_box_new(p, ttl, ttl, id, err);
}

static int project_box_make(struct project *p, struct err *err) {
    if (project_box_new(p, PROJECT_BOX_TTL_MS, PROJECT_BOX_IDLE_MS, p->sandbox, err) < 0)
        return -1;
    p->synced = false;
    p->fresh = true;
    return project_save(p, err);
}

int project_box(struct project *p, struct err *err) {
    bool had = p->sandbox[0] != '\0';
    int there = project_box_look(p, err);
    if (there != 0)
        return there < 0 ? -1 : 0;
    if (had && p->options.note != NULL)
        p->options.note(p->options.arg,
                        "the workspace's sandbox is gone; a new one gets the files");
    return project_box_make(p, err);
}

static int project_box_ttl(struct project *p, const char *id, uint64_t ttl_ms, struct err *err) {
    char path[160];
    json_int_t ttl =
        ttl_ms < (uint64_t)PROJECT_BOX_TTL_MS ? (json_int_t)ttl_ms : PROJECT_BOX_TTL_MS;
    if (sandbox_api_path(path, sizeof(path), id, "/ttl", err) < 0)
        return -1;
    json_t *answer =
        sandbox_api_call(p->rest, "POST", path, json_pack("{s:I}", "ttl_ms", ttl), err);
    json_decref(answer);
    return answer == NULL ? -1 : 0;
}

int project_box_fork(struct project *p, uint64_t ttl_ms, char id[PROJECT_SANDBOX_MAX],
                     struct err *err) {
    char path[160];
    if (sandbox_api_path(path, sizeof(path), p->sandbox, "/fork", err) < 0)
        return -1;
    json_t *answer = sandbox_api_call(p->rest, "POST", path, json_pack("{s:i}", "count", 1), err);
    const json_t *list = json_object_get(answer, "sandboxes");
    const char *text = json_string_value(json_object_get(json_array_get(list, 0), "id"));
    int rc = answer == NULL ? -1 : 0;
    if (rc == 0 && (text == NULL || strlen(text) >= PROJECT_SANDBOX_MAX ||
                    sandbox_api_check(text, "a sandbox", err) < 0))
        rc = err_set(err, ERR_PROTOCOL, 0, "the server's answer names no copy of the sandbox");
    if (rc == 0)
        rc = project_box_ttl(p, text, ttl_ms, err);
    if (rc == 0)
        memcpy(id, text, strlen(text) + 1);
    json_decref(answer);
    return rc;
}

int project_box_delete(struct project *p, const char *id, struct err *err) {
    char path[160];
    struct err why = {0};
    if (sandbox_api_path(path, sizeof(path), id, "", err) < 0)
        return -1;
    json_t *answer = sandbox_api_call(p->rest, "DELETE", path, NULL, &why);
    json_decref(answer);
    if (answer == NULL && why.code != 404 && why.code != 410) {
        *err = why;
        return -1;
    }
    return 0;
}

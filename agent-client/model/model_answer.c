#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"

void model_answer_init(struct model_answer *a, struct model *m) {
    memset(a, 0, sizeof(*a));
    a->model = m;
    buf_init(&a->text, MODEL_ANSWER_MAX);
}

void model_answer_done(struct model_answer *a) {
    buf_done(&a->text);
    for (size_t i = 0; i < a->part_count; i++) {
        free(a->parts[i].id);
        free(a->parts[i].name);
        buf_done(&a->parts[i].arguments);
    }
    json_decref(a->opaque);
    memset(a, 0, sizeof(*a));
}

int model_answer_text(struct model_answer *a, const char *text, size_t len, struct err *err) {
    if (len == 0)
        return 0;
    if (buf_append(&a->text, text, len, err) < 0)
        return err_wrap(err, "the model's answer");
    if (a->model->on_text != NULL)
        a->model->on_text(a->model->arg, text, len);
    return 0;
}

/* Some proxies give every parallel call the index 0 and only the id tells them apart: a new id at a
 * known index is a new call. */
struct model_part *model_answer_part(struct model_answer *a, int index, const char *id,
                                     struct err *err) {
    for (size_t i = a->part_count; i-- > 0;) {
        struct model_part *p = &a->parts[i];
        if (p->index == index &&
            (id == NULL || id[0] == '\0' || p->id == NULL || strcmp(p->id, id) == 0))
            return p;
    }
    if (a->part_count == MODEL_CALLS_MAX) {
        err_set(err, ERR_LIMIT, 0, "the model asks for more than %u calls at once",
                MODEL_CALLS_MAX);
        return NULL;
    }
    struct model_part *p = &a->parts[a->part_count++];
    memset(p, 0, sizeof(*p));
    p->index = index;
    buf_init(&p->arguments, MODEL_ANSWER_MAX);
    return p;
}

int model_part_name(struct model_part *p, const char *id, const char *name, struct err *err) {
    if (id != NULL && id[0] != '\0' && p->id == NULL && (p->id = strdup(id)) == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    if (name != NULL && name[0] != '\0' && p->name == NULL && (p->name = strdup(name)) == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    return 0;
}

int model_part_arguments(struct model_part *p, const char *text, struct err *err) {
    if (text == NULL)
        return 0;
    return buf_puts(&p->arguments, text, err) < 0 ? err_wrap(err, "a call's arguments") : 0;
}

/* Is the call one that may be acted upon? */
static const char *model_answer_fault(const struct model_part *p) {
    if (p->name == NULL)
        return "has no name";
    if (p->arguments.len == 0)
        return NULL; /* no arguments: {} */
    json_t *object = json_loadb(p->arguments.data, p->arguments.len, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_is_object(object);
    json_decref(object);
    return good ? NULL : "has arguments that are no JSON object (cut off?)";
}

static int model_answer_call(const struct model_part *p, size_t number, struct model_call *out) {
    char made[32];
    snprintf(made, sizeof(made), "call_%zu", number);
    out->id = strdup(p->id != NULL ? p->id : made);
    out->name = strdup(p->name);
    out->arguments = strdup(p->arguments.len > 0 ? p->arguments.data : "{}");
    return out->id != NULL && out->name != NULL && out->arguments != NULL ? 0 : -1;
}

/* Models whose server has no parser for their calls write <tool_call>{"name", "arguments"}
 * </tool_call> into the text. */
static int model_answer_rescue(struct model_answer *a, struct err *err) {
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    char *at = a->text.data, *begin;
    if (a->part_count > 0 || at == NULL)
        return 0;
    while ((begin = strstr(at, open)) != NULL) {
        char *end = strstr(begin, close);
        if (end == NULL)
            return 0;
        char *inner = begin + sizeof(open) - 1;
        json_t *call = json_loadb(inner, (size_t)(end - inner), JSON_REJECT_DUPLICATES, NULL);
        const char *name = json_string_value(json_object_get(call, "name"));
        json_t *arguments = json_object_get(call, "arguments");
        char *text = json_is_object(arguments) ? json_dumps(arguments, JSON_COMPACT) : NULL;
        int rc = 0;
        if (name != NULL && text != NULL) {
            struct model_part *p = model_answer_part(a, (int)a->part_count, NULL, err);
            rc = p == NULL || model_part_name(p, NULL, name, err) < 0 ||
                         model_part_arguments(p, text, err) < 0
                     ? -1
                     : 0;
            char *rest = end + sizeof(close) - 1;
            memmove(begin, rest, strlen(rest) + 1);
            a->text.len = strlen(a->text.data);
            at = begin;
        } else {
            at = end;
        }
        free(text);
        json_decref(call);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int model_answer_calls(struct model_answer *a, struct model_reply *reply, struct err *err) {
    struct model_message *m = &reply->message;
    if (a->part_count == 0)
        return 0;
    m->calls = calloc(a->part_count, sizeof(*m->calls));
    if (m->calls == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    for (size_t i = 0; i < a->part_count; i++) {
        const struct model_part *p = &a->parts[i];
        const char *fault = model_answer_fault(p);
        if (fault != NULL) {
            reply->dropped++;
            snprintf(reply->dropped_why, sizeof(reply->dropped_why), "the call %.60s %s",
                     p->name != NULL ? p->name : "?", fault);
            continue;
        }
        if (model_answer_call(p, i, &m->calls[m->call_count++]) < 0)
            return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    }
    return 0;
}

int model_answer_finish(struct model_answer *a, struct model_reply *reply, struct err *err) {
    struct model_message *m = &reply->message;
    reply->usage = a->usage;
    snprintf(reply->model, sizeof(reply->model), "%s", a->model_name);
    m->role = MODEL_ASSISTANT;
    if (model_answer_rescue(a, err) < 0 || model_answer_calls(a, reply, err) < 0)
        return -1;
    if (a->text.len > 0 && (m->text = strdup(a->text.data)) == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    m->opaque = json_incref(a->opaque);
    /* Servers say "stop" beside calls: what is there decides. */
    reply->stop = a->stop == MODEL_STOP_LENGTH    ? MODEL_STOP_LENGTH
                  : a->stop == MODEL_STOP_REFUSED ? MODEL_STOP_REFUSED
                  : m->call_count > 0             ? MODEL_STOP_CALLS
                                                  : MODEL_STOP_END;
    return 0;
}

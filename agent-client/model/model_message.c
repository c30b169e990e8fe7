#include <stdlib.h>
#include <string.h>

#include "model.h"

void model_message_done(struct model_message *m) {
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->call_count; i++) {
        free(m->calls[i].id);
        free(m->calls[i].name);
        free(m->calls[i].arguments);
    }
    free(m->calls);
    free(m->text);
    free(m->call_id);
    json_decref(m->opaque);
    memset(m, 0, sizeof(*m));
}

void model_reply_done(struct model_reply *reply) {
    if (reply == NULL)
        return;
    model_message_done(&reply->message);
    memset(reply, 0, sizeof(*reply));
}

static int model_message_text(const char *from, char **to) {
    *to = from != NULL ? strdup(from) : NULL;
    return from != NULL && *to == NULL ? -1 : 0;
}

int model_message_copy(const struct model_message *from, struct model_message *to) {
    memset(to, 0, sizeof(*to));
    to->role = from->role;
    to->failed = from->failed;
    to->opaque = json_incref(from->opaque);
    int rc =
        model_message_text(from->text, &to->text) | model_message_text(from->call_id, &to->call_id);
    if (from->call_count > 0)
        to->calls = calloc(from->call_count, sizeof(*to->calls));
    if (from->call_count > 0 && to->calls == NULL)
        rc = -1;
    for (size_t i = 0; rc == 0 && i < from->call_count; i++) {
        to->call_count++;
        rc = model_message_text(from->calls[i].id, &to->calls[i].id) |
             model_message_text(from->calls[i].name, &to->calls[i].name) |
             model_message_text(from->calls[i].arguments, &to->calls[i].arguments);
    }
    if (rc < 0)
        model_message_done(to);
    return rc;
}

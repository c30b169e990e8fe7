#include <string.h>

#include "http.h"
#include "sandbox_internal.h"
#include "server.h"

struct sandbox *sandbox_mine(struct server *s, struct http_req *req, const char *id) {
    struct api_error error = {0};
    char text[256];
    struct sandbox *sb = sandboxes_find(&s->sandboxes, id);
    bool mine = sb != NULL && strcmp(sb->owner, req->user_name) == 0;
    if (!mine || sb->state == SANDBOX_OPENING) {
        api_error_set(&error, 404, "not_found", NULL, "There is no such sandbox.");
    } else if (sb->state == SANDBOX_GONE) {
        sandbox_life_text(sb, text, sizeof(text));
        api_error_set(&error, 410, "gone", NULL, "%s", text);
    } else if (sb->detached) {
        api_error_set(&error, 503, "no_runner", NULL,
                      "The runner that has the sandbox is being looked for. Try again.");
    } else {
        sandbox_touch(sb);
        return sb;
    }
    http_reply_error(req, &error);
    return NULL;
}

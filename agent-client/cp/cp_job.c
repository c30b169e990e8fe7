#include "cp_job.h"

#include <errno.h>
#include <string.h>

static size_t cp_job_want(void *arg, struct pollfd fds[REST_WAIT_MAX]) {
    struct cp_job *j = arg;

    fds[0] = (struct pollfd){.fd = j->intr.fd, .events = POLLIN};
    return 1;
}

static int cp_job_ready(void *arg, struct err *err) {
    struct cp_job *j = arg;

    if (j->signal == 0)
        j->signal = intr_take(&j->intr);
    return j->signal != 0 ? err_set(err, ERR_STATE, EINTR, "interrupted") : 0;
}

int cp_job_begin(struct cp_job *j, struct err *err) {
    j->hooks = (struct rest_hooks){cp_job_want, cp_job_ready, j};
    if (target_from_env(&j->target, err) < 0 || intr_begin(&j->intr, err) < 0)
        return -1;
    j->rest = rest_new(&j->target, &j->hooks, err);
    return j->rest != NULL ? 0 : -1;
}

void cp_job_done(struct cp_job *j) {
    progress_end(&j->progress);
    rest_free(j->rest);
    j->rest = NULL;
    target_done(&j->target);
    intr_end(&j->intr);
}

int cp_job_is_directory(struct cp_job *j, const struct cp_path *remote, bool *yes,
                        struct err *err) {
    char url[CP_URL_MAX];
    struct rest_call call = {.method = "GET", .path = url};

    if (cp_path_url(remote, "list", "?depth=1&limit=1", url, sizeof(url), err) < 0 ||
        rest_perform(j->rest, &call, err) < 0)
        return -1;
    *yes = call.status < 400;
    /* Nothing there, or something else than a directory; but not: no such sandbox. */
    if (*yes || strcmp(call.error.code, "not_directory") == 0 ||
        (call.status == 404 && strcmp(call.error.code, "sandbox_not_found") != 0))
        return 0;
    return rest_refusal(&call, err);
}

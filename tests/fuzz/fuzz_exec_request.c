/* The decoder of executions against any bytes: it never crashes, what it lets through keeps the
 * promises of exec_request.h, and what it refuses comes with a sound error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api_error.h"
#include "exec_request.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void check_error(const struct api_error *e) {
    require(e->status == 400 || e->status == 413);
    require(e->code[0] != '\0' && e->message[0] != '\0');
    require(text_is_utf8(e->message, strlen(e->message)) &&
            text_is_utf8(e->field, strlen(e->field)));
}

static void check_exec(const struct exec_request *r) {
    const struct request_step *s = &r->run.steps[0];
    uint8_t hash[EXEC_REQUEST_HASH_SIZE];
    require(r->run.step_count == 1 && s->argc >= 1 && s->argv[s->argc] == NULL);
    require(!s->shell || s->argc == 1);
    require(r->id == NULL || exec_request_id_ok(r->id));
    require((r->rows == 0) == (r->cols == 0));
    require(r->rows <= EXEC_REQUEST_SIZE_MAX && r->cols <= EXEC_REQUEST_SIZE_MAX);
    require(r->rows == 0 || (r->stdin_open && s->input.data == NULL));
    require(r->run.wait || (!r->run.stream && !r->run.cancel_on_disconnect));
    require(!r->background || !r->run.wait);
    require(request_cwd(&r->run, 0)[0] == '/');
    for (int id = 0; id < LIMIT_COUNT; id++)
        require(!s->limits.set[id] || limit_info((enum limit_id)id)->per_step);
    exec_request_hash(r, hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct exec_request r;
    struct api_error error = {0};
    uint16_t rows = 0, cols = 0;
    int number = 0;
    if (exec_request_decode((const char *)data, size, &r, &error) == 0) {
        check_exec(&r);
        exec_request_done(&r);
    } else {
        check_error(&error);
    }
    if (exec_request_resize((const char *)data, size, &rows, &cols, &error) == 0)
        require(rows >= 1 && cols >= 1);
    if (exec_request_signal((const char *)data, size, &number, &error) == 0)
        require(number >= 1 && number <= 64);
    return 0;
}

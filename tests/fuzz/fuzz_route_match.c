/* Any path of a request against a table with every kind of pattern: what is taken out of it is
 * decoded, whole and without a NUL. */
#include "route.h"

#include "fuzz.h"

static void nothing(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)s;
    (void)req;
    (void)args;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct route table[] = {{"GET", "/v1/runs", 0, nothing, 0},
                                         {"GET", "/v1/runs/{}", 0, nothing, 0},
                                         {"GET", "/v1/runs/{}/steps/{}/stdout", 0, nothing, 0},
                                         {"PUT", "/v1/sandboxes/{}/files/{*}", 0, nothing, 0},
                                         {0}};
    static const char *const methods[] = {"GET", "PUT", "HEAD", "get", ""};
    struct route_args args;
    struct api_error error = {0};
    if (size == 0)
        return 0;
    char *path = fuzz_text(data + 1, size - 1);
    const struct route *r = route_find(table, methods[data[0] % 5], path, &args, &error);
    if (r != NULL) {
        fuzz_require(args.count <= ROUTE_ARGS_MAX);
        for (size_t i = 0; i < args.count; i++)
            fuzz_require(args.value[i][0] != '\0' &&
                         strnlen(args.value[i], ROUTE_ARG_SIZE) < ROUTE_ARG_SIZE);
        fuzz_require(strnlen(args.rest, sizeof(args.rest)) < sizeof(args.rest));
    } else {
        fuzz_require(error.status == 400 || error.status == 404 || error.status == 405 ||
                     error.status == 414);
    }
    free(path);
    return 0;
}

/* Any bytes as the answer of a server: the client takes a JSON object, or says in a sentence why it
 * does not; its token is in no sentence. */
#include "rest.h"

#include <jansson.h>

#include "fuzz_serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char token[] = "pf_secretsecretsecret";
    struct fuzz_server *server = fuzz_server();
    struct target target;
    struct err err = {0};
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", server->port);
    fuzz_answer(server, data, size);
    fuzz_require(target_init(&target, url, token, &err) == 0);
    struct rest *h = rest_new(&target, NULL, &err);
    fuzz_require(h != NULL);
    json_t *object = rest_get_json(h, "/v1/me", 65536, &err);
    fuzz_require(object != NULL || err.text[0] != '\0');
    fuzz_require(strstr(err.text, token) == NULL);
    (void)rest_header(h, "Retry-After");
    json_decref(object);
    rest_free(h);
    target_done(&target);
    return 0;
}

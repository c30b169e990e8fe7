#include "api.h"

/* The document is server/openapi.json, byte for byte; the compiler runs in the root of the project.
 */
__asm__(".section .rodata\n"
        ".global openapi_text\n"
        ".global openapi_text_end\n"
        "openapi_text:\n"
        ".incbin \"server/openapi.json\"\n"
        "openapi_text_end:\n"
        ".previous\n");

extern const char openapi_text[];
extern const char openapi_text_end[];

void openapi_get(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)s;
    (void)args;
    struct http_body body = {.data = openapi_text,
                             .len = (size_t)(openapi_text_end - openapi_text)};
    http_reply(req, 200, "application/json", &body);
}

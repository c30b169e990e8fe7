#include "api.h"
#include "json_out.h"

/* The public key: whoever has a receipt may have it. */
void api_receipt_key(struct server *s, struct http_req *req, const struct route_args *args) {
    char hex[2 * RECEIPT_PUBLIC_SIZE + 1];
    struct json_out j;
    struct buf out;
    (void)args;
    receipt_hex(s->receipt_key.public.bytes, RECEIPT_PUBLIC_SIZE, hex);
    buf_init(&out, 512);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "algorithm", "ed25519");
    json_out_str(&j, "id", s->receipt_key.id);
    json_out_str(&j, "key", hex);
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

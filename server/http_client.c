#include "http_internal.h"

#define HTTP_FORWARDED_MAX 4096u

const char *http_client(struct http_req *req) {
    const struct proxy *proxy = &req->http->options.proxy;
    char forwarded[HTTP_FORWARDED_MAX], other[HTTP_FORWARDED_MAX];
    if (req->client[0] != '\0')
        return req->client;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(req->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info == NULL || info->client_addr == NULL)
        return "?";
    bool any = proxy->count > 0;
    bool has_forwarded =
        any && http_header_join(req, MHD_HTTP_HEADER_FORWARDED, forwarded, sizeof(forwarded)) > 0;
    bool has_other =
        any && !has_forwarded && http_header_join(req, "X-Forwarded-For", other, sizeof(other)) > 0;
    proxy_client(proxy, info->client_addr, has_forwarded ? forwarded : NULL,
                 has_other ? other : NULL, req->client);
    return req->client;
}

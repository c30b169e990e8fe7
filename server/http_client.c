#include <string.h>
#include <strings.h>

#include "http_internal.h"

#define HTTP_FORWARDED_MAX 4096u

/* The values of one header, with commas between. */
struct http_client_list {
    const char *name;
    char text[HTTP_FORWARDED_MAX];
    size_t len;
    bool found, whole;
};

static enum MHD_Result http_client_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                          const char *value) {
    struct http_client_list *l = arg;
    (void)kind;
    if (strcasecmp(name, l->name) != 0 || value == NULL)
        return MHD_YES;
    size_t len = strlen(value);
    if (len + 2 > sizeof(l->text) - l->len) {
        l->whole = false;
        return MHD_NO;
    }
    if (l->found)
        l->text[l->len++] = ',';
    memcpy(l->text + l->len, value, len + 1);
    l->len += len;
    l->found = true;
    return MHD_YES;
}

/* NULL: it is not there, or too long to be of any use. */
static const char *http_client_list(struct http_req *req, struct http_client_list *l,
                                    const char *name) {
    l->name = name;
    l->len = 0;
    l->found = false;
    l->whole = true;
    MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, http_client_header, l);
    return l->found && l->whole ? l->text : NULL;
}

const char *http_client(struct http_req *req) {
    const struct proxy *proxy = &req->http->options.proxy;
    struct http_client_list forwarded, other;
    if (req->client[0] != '\0')
        return req->client;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(req->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info == NULL || info->client_addr == NULL)
        return "?";
    bool any = proxy->count > 0;
    proxy_client(proxy, info->client_addr,
                 any ? http_client_list(req, &forwarded, MHD_HTTP_HEADER_FORWARDED) : NULL,
                 any ? http_client_list(req, &other, "X-Forwarded-For") : NULL, req->client);
    return req->client;
}

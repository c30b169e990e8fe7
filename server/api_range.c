#include "api_range.h"

#include <inttypes.h>

#include "range.h"

int api_range_begin(struct http_req *req, uint64_t size, const char *of, struct api_range *r) {
    struct api_error error = {0};
    uint64_t first = 0, last = 0;
    enum range_result want = range_parse(http_header(req, "Range"), size, &first, &last);
    bool part = want == RANGE_PART;
    http_add_header(req, "Accept-Ranges", "bytes");
    if (want == RANGE_UNSATISFIABLE) {
        http_add_header(req, "Content-Range", "bytes */%" PRIu64, size);
        api_error_set(&error, 416, "bad_range", NULL,
                      "The range lies outside of the %" PRIu64 " bytes %s.", size, of);
        http_reply_error(req, &error);
        return -1;
    }
    *r = (struct api_range){
        .at = part ? first : 0, .end = part ? last + 1 : size, .size = size, .part = part};
    return 0;
}

void api_range_reply(struct http_req *req, const struct api_range *r,
                     const struct http_stream *stream, void *arg) {
    if (r->part)
        http_add_header(req, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r->at,
                        r->end - 1, r->size);
    http_reply_stream(req, r->part ? 206 : 200, "application/octet-stream", r->end - r->at, stream,
                      arg);
}

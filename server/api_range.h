/* Answers that are bytes of something: all of it, or the part that the Range header asks for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "http.h"

struct api_range {
    uint64_t at, end; /* what is to be sent: [at, end) … */
    uint64_t size;    /* … of so many bytes */
    bool part;        /* it was asked for: 206 */
};

/* Reads the header. `of` says which bytes there are, for people ("of the blob"). -1: it asks for
 * none of them, which is answered (416). */
int api_range_begin(struct http_req *req, uint64_t size, const char *of, struct api_range *r);
/* Answers with end - at bytes, which `stream` gives. */
void api_range_reply(struct http_req *req, const struct api_range *r,
                     const struct http_stream *stream, void *arg);

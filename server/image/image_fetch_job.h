/* The part of image_fetch() that runs without rights. */
#pragma once

#include "image_fetch.h"

struct image_fetch_job {
    struct image_fetch f;
    const char *url;
    int fd;
    uint64_t max;
};

int image_fetch_job(const struct image_fetch_job *job, struct err *err);

/* Archives are read and made by processes that have no rights (rights.h), since every byte of them
 * is hostile and the library that knows them ends its process when memory is short. A helper, which
 * the server starts when it has the first archive, forks one for each: it is another image than the
 * server, so none of them has the server's memory. */
#pragma once

#include <stdint.h>

#include "err.h"
#include "tar_pack.h"
#include "tar_read.h"

/* The helper is this program, started with this argument and its socket as descriptor 0. */
#define TAR_APART_COMMAND "archives"

enum tar_apart_what {
    TAR_APART_UNPACK = 1, /* tar_read_run() */
    TAR_APART_PACK,       /* tar_pack_run() */
};

/* One datagram to the helper, with three descriptors: what is read, what is written, and a pipe for
 * the report. */
struct tar_apart_job {
    uint32_t what;
    uint32_t reserved;
    uint64_t max_bytes, max_entries; /* UNPACK */
    char name[256];                  /* PACK */
};

#define TAR_APART_MAGIC 0x31415450u
struct tar_apart_report {
    uint32_t magic;
    uint32_t what;
    union {
        struct tar_read_result unpacked;
        struct tar_pack_result packed;
    };
};

/* 0 when it can be believed to be what it says: codes in range, text ASCII (which is seen to). */
int tar_apart_check(struct tar_apart_report *report, enum tar_apart_what what, struct err *err);

/* The helper, until the other end of `sock` is closed. A process that cannot be started reports
 * that memory is short. */
int tar_apart_serve(int sock, struct err *err);

/* Everything of a serving process, in one place that is passed around. One thread owns it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "accounts_live.h"
#include "archives.h"
#include "audit.h"
#include "blobs.h"
#include "hostmem.h"
#include "http.h"
#include "idle.h"
#include "links.h"
#include "log.h"
#include "look.h"
#include "loop.h"
#include "metrics.h"
#include "processors.h"
#include "quota.h"
#include "runs.h"
#include "sandboxes.h"
#include "seen.h"
#include "snapshots.h"
#include "state.h"
#include "store.h"
#include "trace.h"
#include "traces_late.h"
#include "work.h"

#define SERVER_VERSION "0.1.0"

/* A request body: 64 MiB of stdin as base64, and room for files and the rest. */
#define SERVER_BODY_MAX ((uint64_t)128 * 1024 * 1024)
/* A body that is held in memory as it is. */
#define SERVER_RAW_MAX ((uint64_t)16 * 1024 * 1024)
/* From here on a body is decoded, or an answer encoded, by a worker thread. */
#define SERVER_INLINE_MAX ((size_t)128 * 1024)

struct config;
struct exec;
struct exec_hub;
struct idempotency;
struct tls;

struct server {
    const struct config *config; /* borrowed; strings of it may be used for ever */
    struct loop *loop;
    struct log log;
    struct state state; /* also the current directory */
    struct store *store;
    struct store_waiter answers; /* those that are held back until the store has committed */
    struct accounts_live accounts;
    struct quota *quota;
    struct hostmem mem;
    struct links links;
    struct look look;
    struct processors processors;
    struct metrics metrics;
    struct runs runs;
    struct retain *retain;
    struct idempotency *idempotency;
    struct sandboxes sandboxes;
    struct snapshots snapshots;
    struct audit audit;
    struct receipt_key receipt_key;
    struct work *work;
    void (*exec_ended)(struct audit *audit, const struct exec *x); /* for the hub, as the next */
    void (*exec_leaves)(struct server *s, const struct exec *x);
    struct exec_hub *exec_hub; /* NULL until the first sandbox */
    struct blobs *blobs;
    struct trace_pool trace_pool;
    struct traces_late traces_late;
    struct seen seen;
    struct idle idle;
    struct tls *tls; /* NULL = plain HTTP */
    struct http *http;
    struct archives archives;
    bool draining;
};

/* Can a jail with this memory limit ever start? -1: *error is 422. */
int server_check_memory(const struct server *s, uint64_t mem_bytes, struct api_error *error);
/* The error for a request whose changes could not be stored; `err` may be NULL: it has not been
 * tried, the store is sick. */
void server_no_store(struct server *s, const struct err *err, struct api_error *error);

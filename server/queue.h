/* A first-in-first-out queue that is bounded in entries and in bytes. The nodes are embedded in
 * what waits; any of them can leave from the middle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue_node {
    struct queue_node *next, *prev;
    size_t bytes;
    bool queued;
};

struct queue {
    struct queue_node *first, *last;
    size_t count, max_count;
    size_t bytes, max_bytes;
};

void queue_init(struct queue *q, size_t max_count, size_t max_bytes);
/* Would an entry of `bytes` fit? An empty queue takes an entry of any size. */
bool queue_fits(const struct queue *q, size_t bytes);
/* Appends; the caller has asked queue_fits(). */
void queue_push(struct queue *q, struct queue_node *node, size_t bytes);
/* Takes a node out, wherever it is; does nothing when it is not queued. */
void queue_remove(struct queue *q, struct queue_node *node);
/* Entries in front of `node`. */
size_t queue_position(const struct queue *q, const struct queue_node *node);

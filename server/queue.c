#include "queue.h"

#include <string.h>

void queue_init(struct queue *q, size_t max_count, size_t max_bytes) {
    memset(q, 0, sizeof(*q));
    q->max_count = max_count;
    q->max_bytes = max_bytes;
}

bool queue_fits(const struct queue *q, size_t bytes) {
    if (q->count >= q->max_count)
        return false;
    return q->count == 0 || (bytes <= q->max_bytes && q->bytes <= q->max_bytes - bytes);
}

void queue_push(struct queue *q, struct queue_node *node, size_t bytes) {
    *node = (struct queue_node){.prev = q->last, .bytes = bytes, .queued = true};
    if (q->last != NULL)
        q->last->next = node;
    else
        q->first = node;
    q->last = node;
    q->count++;
    q->bytes += bytes;
}

void queue_remove(struct queue *q, struct queue_node *node) {
    if (!node->queued)
        return;
    if (node->prev != NULL)
        node->prev->next = node->next;
    else
        q->first = node->next;
    if (node->next != NULL)
        node->next->prev = node->prev;
    else
        q->last = node->prev;
    q->count--;
    q->bytes -= node->bytes;
    *node = (struct queue_node){0};
}

size_t queue_position(const struct queue *q, const struct queue_node *node) {
    size_t n = 0;
    for (const struct queue_node *i = q->first; i != NULL && i != node; i = i->next)
        n++;
    return n;
}

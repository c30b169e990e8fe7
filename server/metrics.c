#include "metrics.h"

#include <string.h>

#include "clock.h"

/* Upper bounds in microseconds: fine where a warm jail is, coarse above. */
static const uint64_t metrics_bounds_us[METRICS_BUCKETS] = {
    100,   250,    500,    1000,    2500,     5000,     10000,
    25000, 100000, 500000, 2000000, 10000000, 60000000, 300000000,
};

uint64_t metrics_bound_ns(size_t bucket) {
    return metrics_bounds_us[bucket] * 1000;
}

void metrics_observe(struct metrics_histogram *h, uint64_t ns) {
    size_t i = 0;
    while (i < METRICS_BUCKETS && ns > metrics_bounds_us[i] * 1000)
        i++;
    h->buckets[i]++;
    h->sum_ns += ns;
    h->count++;
}

/* Codes of errors that are worth a series of their own; the rest is "other", so that nobody can
 * make series. */
static const char *const metrics_reasons[] = {
    "unauthorized",
    "scope",
    "plain_http",
    "policy_limit",
    "policy_network",
    "policy_steps",
    "wider_than_parent",
    "child_token",
    "not_found",
    "gone",
    "method_not_allowed",
    "conflict",
    "id_taken",
    "state",
    "paused",
    "not_ready",
    "not_running",
    "quota",
    "quota_exceeded",
    "queue_full",
    "too_many_executions",
    "no_room",
    "draining",
    "no_runner",
    "store",
    "audit",
    "no_space",
    "busy",
    "too_large",
    "bad_json",
    "not_json",
    "bad_request",
    "bad_framing",
    "bad_query",
    "invalid_value",
    "out_of_range",
    "wrong_type",
    "unknown_field",
    "missing_field",
    "unknown_policy",
    "unknown_image",
    "unavailable",
    "timeout",
    "internal",
};
#define METRICS_KNOWN (sizeof(metrics_reasons) / sizeof(metrics_reasons[0]))
_Static_assert(METRICS_KNOWN < METRICS_REASONS, "there must be room for \"other\"");

const char *metrics_reason(size_t index) {
    if (index < METRICS_KNOWN)
        return metrics_reasons[index];
    return index == METRICS_REASONS - 1 ? "other" : NULL;
}

void metrics_refusal(struct metrics *m, const char *code) {
    size_t i = 0;
    while (i < METRICS_KNOWN && strcmp(metrics_reasons[i], code) != 0)
        i++;
    m->refusals[i < METRICS_KNOWN ? i : METRICS_REASONS - 1]++;
}

/* The seconds that have passed without an event are empty. */
static uint64_t metrics_rate_age(const struct metrics_rate *r, uint64_t now) {
    return now > r->second ? now - r->second : 0;
}

void metrics_count(struct metrics_rate *r, uint64_t now_ns) {
    uint64_t now = now_ns / CLOCK_NS_PER_S, age = metrics_rate_age(r, now);
    for (uint64_t i = 1; i <= age && i <= METRICS_RATE_SECONDS; i++)
        r->counts[(r->second + i) % METRICS_RATE_SECONDS] = 0;
    r->second += age;
    r->counts[r->second % METRICS_RATE_SECONDS]++;
}

uint64_t metrics_per_minute(const struct metrics_rate *r, uint64_t now_ns) {
    uint64_t age = metrics_rate_age(r, now_ns / CLOCK_NS_PER_S), sum = 0;
    for (uint64_t i = 0; i + age < METRICS_RATE_SECONDS && i <= r->second; i++)
        sum += r->counts[(r->second - i) % METRICS_RATE_SECONDS];
    return sum;
}

/* "…/{}/events", "…/watch/{*}": somebody follows. */
static bool metrics_is_followed(const char *pattern) {
    size_t len = strlen(pattern);
    return (len > 7 && strcmp(pattern + len - 7, "/events") == 0) ||
           strstr(pattern, "/watch/") != NULL;
}

enum metrics_family metrics_family(const char *pattern) {
    static const struct {
        const char *part;
        enum metrics_family family;
    } below[] = {
        /* of a sandbox */
        {"/exec", METRICS_EXEC},         {"/files/", METRICS_FILES},
        {"/stat/", METRICS_FILES},       {"/list/", METRICS_FILES},
        {"/mkdir/", METRICS_FILES},      {"/move", METRICS_FILES},
        {"/archive/", METRICS_FILES},    {"/sync", METRICS_SYNC},
        {"/changes", METRICS_SYNC},      {"/snapshots", METRICS_SNAPSHOTS},
        {"/restore", METRICS_SNAPSHOTS},
    };
    static const char box[] = "/v1/sandboxes/{}";
    if (metrics_is_followed(pattern))
        return METRICS_EVENTS;
    if (strncmp(pattern, box, sizeof(box) - 1) == 0) {
        const char *rest = pattern + sizeof(box) - 1;
        for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
            if (strncmp(rest, below[i].part, strlen(below[i].part)) == 0)
                return below[i].family;
    }
    return strncmp(pattern, "/v1/runs", 8) == 0         ? METRICS_RUNS
           : strncmp(pattern, "/v1/sandboxes", 13) == 0 ? METRICS_SANDBOXES
           : strncmp(pattern, "/v1/snapshots", 13) == 0 ? METRICS_SNAPSHOTS
           : strncmp(pattern, "/v1/blobs", 9) == 0      ? METRICS_SYNC
           : strncmp(pattern, "/v1/tokens", 10) == 0    ? METRICS_TOKENS
           : strncmp(pattern, "/v1/users", 9) == 0      ? METRICS_TOKENS
                                                        : METRICS_INFO;
}

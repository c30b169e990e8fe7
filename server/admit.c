#include "admit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What a default is never lowered below. */
#define ADMIT_OUTPUT_LEAST ((uint64_t)4096)

/* Does a step's value of this limit have to stay within the run's? So it is for what belongs to the
 * whole jail; what is counted anew for every step (time, output) or process is free up to the
 * policy's ceiling. */
static bool admit_within_run(int id) {
    return id == LIMIT_MEM_BYTES || id == LIMIT_PIDS || id == LIMIT_CPUS_MILLI;
}

static int admit_over(struct api_error *error, const char *prefix, int id, uint64_t wish,
                      const struct wire_policy *policy) {
    const struct limit_info *info = limit_info((enum limit_id)id);
    char field[64];
    snprintf(field, sizeof(field), "%s/limits/%s", prefix, info->name);
    return api_error_set(error, 403, "policy_limit", field,
                         "%s asks for %" PRIu64 " of %s, but the policy %s allows at most %" PRIu64
                         ".",
                         info->name, wish, info->what, policy->name, policy->ceiling.v[id]);
}

/* A limit that is promised is kept; what this runner cannot keep nobody may ask for. */
static int admit_unenforced(struct api_error *error, const char *prefix, int id) {
    const struct limit_info *info = limit_info((enum limit_id)id);
    char field[64];
    snprintf(field, sizeof(field), "%s/limits/%s", prefix, info->name);
    return api_error_set(error, 422, "limit_unavailable", field,
                         "%s cannot be enforced: the runner was started without it "
                         "(--allow-missing); leave it out, or ask whoever runs the server.",
                         info->name);
}

int admit_limits(const struct request_limits *wishes, const struct wire_policy *policy,
                 struct limits_effective *out, struct api_error *error) {
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (!wishes->set[i]) {
            out->values.v[i] = policy->preset.v[i];
            out->from[i] =
                policy->unenforced & (1u << i) ? LIMITS_FROM_UNENFORCED : LIMITS_FROM_DEFAULT;
            continue;
        }
        if (policy->unenforced & (1u << i))
            return admit_unenforced(error, "", i);
        uint64_t wish = wishes->values.v[i];
        if (wish > policy->ceiling.v[i])
            return admit_over(error, "", i, wish, policy);
        out->values.v[i] = wish;
        out->from[i] = LIMITS_FROM_REQUEST;
    }
    return 0;
}

int admit_step_limits(const struct request_limits *wishes, const char *prefix,
                      const struct wire_policy *policy, const struct limits_effective *whole,
                      struct limits_effective *out, struct api_error *error) {
    *out = *whole;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit_id)i);
        if (!wishes->set[i])
            continue;
        if (policy->unenforced & (1u << i))
            return admit_unenforced(error, prefix, i);
        uint64_t wish = wishes->values.v[i];
        if (wish > policy->ceiling.v[i])
            return admit_over(error, prefix, i, wish, policy);
        if (admit_within_run(i) && wish > whole->values.v[i]) {
            char field[64];
            snprintf(field, sizeof(field), "%s/limits/%s", prefix, info->name);
            return api_error_set(error, 400, "limit_conflict", field,
                                 "%s of this step is %" PRIu64 ", more than the %" PRIu64
                                 " that the run or sandbox as a whole has.",
                                 info->name, wish, whole->values.v[i]);
        }
        out->values.v[i] = wish;
        out->from[i] = LIMITS_FROM_REQUEST;
    }
    return 0;
}

void admit_jail_limits(const struct limits *whole, const struct wire_policy *policy,
                       struct limits *out) {
    for (int i = 0; i < LIMIT_COUNT; i++) {
        bool own = admit_within_run(i) || !limit_info((enum limit_id)i)->per_step;
        out->v[i] = own ? whole->v[i] : policy->ceiling.v[i];
    }
}

int admit_network(enum request_network wish, struct api_error *error) {
    if (wish == REQUEST_NETWORK_NONE)
        return 0;
    return api_error_set(error, 403, "policy_network", "/network",
                         "The policy allows no network, only \"none\".");
}

int admit_backend(enum backend wish, const struct wire_policy *policy, enum backend *out,
                  struct api_error *error) {
    enum backend backend = wish != BACKEND_NONE ? wish : (enum backend)policy->backend;
    if (!(policy->backends & BACKEND_BIT(backend)))
        return api_error_set(error, 403, "policy_backend", "/backend",
                             "The policy does not allow the back end %s, only %s.",
                             backend_name(backend), backend_name(policy->backend));
    *out = backend;
    return 0;
}

static int admit_shape(const struct run_request *req, const struct wire_policy *policy,
                       struct api_error *error) {
    if (req->step_count > policy->max_steps)
        return api_error_set(error, 403, "policy_steps", "/steps",
                             "The run has %zu steps, but the policy %s allows at most %u.",
                             req->step_count, policy->name, policy->max_steps);
    return admit_network(req->network, error);
}

static uint64_t admit_output_of(const struct limits_effective *limits) {
    return ADMIT_STREAMS * limits->values.v[LIMIT_OUTPUT_BYTES];
}

uint64_t admit_output(const struct limits_effective *steps, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += admit_output_of(&steps[i]);
    return sum;
}

/* The output of a run is in the server's memory until its end, so all its steps together may only
 * keep so much. What nobody asked for is lowered. */
static int admit_bound_output(struct admit *a, size_t count, struct api_error *error) {
    uint64_t asked = 0, open = 0;
    if (admit_output(a->steps, count) <= ADMIT_OUTPUT_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        bool wish = a->steps[i].from[LIMIT_OUTPUT_BYTES] == LIMITS_FROM_REQUEST;
        asked += wish ? admit_output_of(&a->steps[i]) : 0;
        open += !wish;
    }
    uint64_t least = open * ADMIT_STREAMS * ADMIT_OUTPUT_LEAST;
    if (open == 0 || asked > ADMIT_OUTPUT_MAX - least)
        return api_error_set(error, 400, "too_large", "/limits/output_bytes",
                             "The steps of this run ask for %" PRIu64
                             " bytes of kept output together, two streams of each; a run may keep "
                             "at most %" PRIu64 ".",
                             asked, ADMIT_OUTPUT_MAX);
    uint64_t share = (ADMIT_OUTPUT_MAX - asked) / (open * ADMIT_STREAMS);
    for (size_t i = 0; i <= count; i++) {
        struct limits_effective *limits = i < count ? &a->steps[i] : &a->run;
        if (limits->from[LIMIT_OUTPUT_BYTES] == LIMITS_FROM_REQUEST ||
            limits->values.v[LIMIT_OUTPUT_BYTES] <= share)
            continue;
        limits->values.v[LIMIT_OUTPUT_BYTES] = share;
        limits->from[LIMIT_OUTPUT_BYTES] = LIMITS_FROM_POLICY;
    }
    return 0;
}

int admit_check(const struct run_request *req, const struct wire_policy *policy, struct admit *out,
                struct api_error *error) {
    struct admit a = {.end_on = req->end_on_set ? req->end_on : policy->end_on};
    if (admit_shape(req, policy, error) < 0 ||
        admit_limits(&req->limits, policy, &a.run, error) < 0)
        return -1;
    a.steps = calloc(req->step_count, sizeof(*a.steps));
    if (a.steps == NULL)
        return api_error_memory(error);
    a.open = a.run.values;
    for (size_t i = 0; i < req->step_count; i++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "/steps/%zu", i);
        if (admit_step_limits(&req->steps[i].limits, prefix, policy, &a.run, &a.steps[i], error) <
            0) {
            free(a.steps);
            return -1;
        }
        for (int id = 0; id < LIMIT_COUNT; id++)
            if (a.steps[i].values.v[id] > a.open.v[id])
                a.open.v[id] = a.steps[i].values.v[id];
    }
    if (admit_bound_output(&a, req->step_count, error) < 0) {
        free(a.steps);
        return -1;
    }
    *out = a;
    return 0;
}

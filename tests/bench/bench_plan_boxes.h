/* The part of the plan that is about sandboxes. */
#pragma once

#include "bench_plan.h"
#include "bench_results.h"
#include "bench_service.h"
#include "err.h"

/* Everything but bench_plan_boxes_many(), with services that are up. */
int bench_plan_boxes_run(const struct bench_service *s, const struct bench_effort *effort,
                         struct bench_sandboxes *b, struct err *err);
/* `count` sandboxes that do nothing, with services of its own. */
int bench_plan_boxes_many(const struct bench_paths *paths, unsigned count, struct bench_many *many,
                          struct err *err);

/* The program of a filter's graph, in the instructions that seccomp(2) takes. */
#pragma once

#include "err.h"
#include "seccomp_filter.h"
#include "seccomp_graph.h"

/* On success the caller owns *out (seccomp_done()). */
int seccomp_emit(const struct seccomp_graph *g, struct seccomp_program *out, struct err *err);

/* The verifiers that there are, each in a file of its own. */
#pragma once

#include "verify.h"

extern const struct verifier verify_exit;         /* the answer of a run: every step ended well */
extern const struct verifier verify_log;          /* what a test runner printed */
extern const struct verifier verify_junit;        /* JUnit's XML */
extern const struct verifier verify_tap;          /* the Test Anything Protocol */
extern const struct verifier verify_schema;       /* JSON against a JSON Schema */
extern const struct verifier verify_csv;          /* rows, columns, empty fields */
extern const struct verifier verify_reconcile;    /* sums that must agree */
extern const struct verifier verify_completeness; /* everything that was asked for is there */

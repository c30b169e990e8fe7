/* Several checks from a JSON file:
 *
 *   {"checks": [{"verify": "csv", "file": "out.csv", "rows": "1..", "not_null": ["id", "name"]},
 *               {"verify": "junit", "name": "unit tests", "file": "report.xml"}]}
 *
 * A value is a string, a whole number, or a list of them, which stands for an argument that is
 * given several times. */
#pragma once

#include <jansson.h>

#include "verify.h"

#define VERIFY_CHECKS_MAX 256u

/* Runs all of them with paths beneath `root`; `each` gets every report (borrowed), with the check's
 * own name or the verifier's. Returns the worst verdict; a file that is not understood is
 * VERIFY_BROKEN with *err. */
enum verify_verdict verify_checks_run(int root, const char *file,
                                      void (*each)(void *arg, const char *name,
                                                   const struct verify_report *report),
                                      void *arg, struct err *err);
/* The report as an object: verifier, verdict, passed, failed, skipped, summary, failures. A new
 * reference, or NULL. */
json_t *verify_checks_json(const char *name, const struct verify_report *report);

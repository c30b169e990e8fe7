/* Which image of an index: by its tag, and for this machine. */
#pragma once

#include "err.h"
#include "image_oci.h"

/* The names that OCI gives to this machine: "linux" and "amd64", "arm64", … */
const char *image_choose_machine(void);

/* `tag` "" = the only one that there is. ERR_INVALID lists what there is. */
int image_choose(const struct image_oci_index *index, const char *tag, struct image_oci_blob *out,
                 struct err *err);
/* Is it for this machine? ERR_INVALID says what it is for. */
int image_choose_check(const struct image_oci_config *config, struct err *err);

#include "layers_worker.h"

#include <errno.h>

int layers_disk_make(const struct layers_work *w, struct err *err) {
    (void)w;
    return err_set(err, ERR_STATE, ENOTSUP, "disk files are not to be had");
}

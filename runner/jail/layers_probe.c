#include "layers_worker.h"

#include <errno.h>

int layers_probe_snapshots(struct layers_work *w, struct err *err) {
    (void)w;
    (void)err;
    return 0;
}

int layers_probe_files(struct layers_work *w, struct err *err) {
    (void)w;
    return err_set(err, ERR_STATE, ENOTSUP, "disk files are not to be had");
}

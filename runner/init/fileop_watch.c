#include "fileop_op.h"
#include <errno.h>
int fileop_watch(struct fileop_op *o) {
    (void)o;
    errno = ENOSYS;
    return -1;
}

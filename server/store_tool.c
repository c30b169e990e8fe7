#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drop.h"
#include "fd.h"
#include "state.h"
#include "store.h"

int store_open_tool(const struct state *state, struct store **out, struct err *err) {
    struct stat st;
    fd_cleanup int dir = state_open_dir(state, STATE_SERVER, err);
    if (dir < 0)
        return -1;
    if (fstat(dir, &st) < 0)
        return err_sys(err, "looking at %s/" STATE_SERVER, state->path);
    if (geteuid() == 0 && st.st_uid != 0) {
        struct state_user owner = {.uid = st.st_uid, .gid = st.st_gid};
        if (drop_privileges(&owner, err) < 0)
            return -1;
    }
    struct store_options options = {.dir = dir};
    if (store_open(&options, out, err) < 0)
        return err_wrap(err, "%s", state->path);
    return 0;
}

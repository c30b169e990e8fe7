#include "drop.h"

#include <errno.h>
#include <grp.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The bounding set only matters to root's exec, but an empty one also says so in /proc. */
static int drop_bounding(struct err *err) {
    for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++)
        if (cap_drop_bound(cap) < 0)
            return err_sys(err, "dropping capability %d from the bounding set", cap);
    return 0;
}

static int drop_user(const struct state_user *user, struct err *err) {
    if (setgroups(0, NULL) < 0)
        return err_sys(err, "giving up supplementary groups");
    if (setresgid(user->gid, user->gid, user->gid) < 0)
        return err_sys(err, "becoming group %u", user->gid);
    if (setresuid(user->uid, user->uid, user->uid) < 0)
        return err_sys(err, "becoming user %u", user->uid);
    return 0;
}

static int drop_capabilities(struct err *err) {
    cap_t none = cap_init();
    if (none == NULL)
        return err_sys(err, "making an empty set of capabilities");
    int rc = cap_set_proc(none);
    if (rc < 0)
        err_sys(err, "giving up all capabilities");
    cap_free(none);
    if (rc == 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(err, "clearing the ambient capabilities");
    return rc;
}

static int drop_verify_ids(const struct state_user *user, struct err *err) {
    uid_t r, e, s;
    gid_t rg, eg, sg;
    getresuid(&r, &e, &s);
    getresgid(&rg, &eg, &sg);
    if (r != user->uid || e != user->uid || s != user->uid || rg != user->gid || eg != user->gid ||
        sg != user->gid || getgroups(0, NULL) != 0)
        return err_set(err, ERR_STATE, 0, "the server did not become its own user");
    if (setuid(0) == 0 || seteuid(0) == 0)
        return err_set(err, ERR_STATE, 0, "the server could become root again");
    return 0;
}

static int drop_verify_caps(struct err *err) {
    cap_t have = cap_get_proc();
    cap_t none = cap_init();
    int same = have != NULL && none != NULL ? cap_compare(have, none) : -1;
    cap_free(have);
    cap_free(none);
    if (same != 0)
        return err_set(err, ERR_STATE, 0, "the server still has capabilities");
    return 0;
}

int drop_privileges(const struct state_user *user, struct err *err) {
    if (geteuid() == 0 && user->uid == 0)
        return err_set(err, ERR_INVALID, 0,
                       "the server does not serve as root; name another user with --user");
    if (geteuid() == 0) {
        if (drop_bounding(err) < 0 || drop_user(user, err) < 0 || drop_capabilities(err) < 0 ||
            drop_verify_ids(user, err) < 0)
            return -1;
    } else if (geteuid() != user->uid) {
        return err_set(err, ERR_INVALID, EPERM, "only root can become another user (--user)");
    } else if (drop_capabilities(err) < 0) {
        return -1;
    }
    if (drop_verify_caps(err) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "setting no_new_privs");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, "becoming not dumpable");
    return 0;
}

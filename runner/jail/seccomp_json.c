#include "seccomp_json.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <string.h>

/* {"names":["socket"],"action":"SCMP_ACT_ERRNO","errnoRet":97,"args":[…]}: the comparisons keep
 * libseccomp's own names and values. */
static int seccomp_json_write(struct seccomp_json *j, const char *name, uint32_t action,
                              struct seccomp_json_args args, struct err *err) {
    static const char *const ops[] = {[SCMP_CMP_EQ] = "EQ",
                                      [SCMP_CMP_NE] = "NE",
                                      [SCMP_CMP_LT] = "LT",
                                      [SCMP_CMP_GT] = "GT",
                                      [SCMP_CMP_MASKED_EQ] = "MASKED_EQ"};
    /* What is reported, the program reports; a filter of the engine's has nobody to report to. */
    bool allow = action == SCMP_ACT_ALLOW || action == SCMP_ACT_NOTIFY;
    if (!allow && (action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_ERRNO) {
        return err_set(err, ERR_INVALID, EINVAL, "the action for %s cannot be said in a profile",
                       name);
    }
    int rc = buf_printf(j->out, err, "%s{\"names\":[\"%s\"],", j->comma, name);
    if (rc == 0 && allow) {
        rc = buf_puts(j->out, "\"action\":\"SCMP_ACT_ALLOW\",\"args\":[", err);
    } else if (rc == 0) {
        rc = buf_printf(j->out, err, "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":%u,\"args\":[",
                        action & 0xffffu);
    }
    for (unsigned i = 0; rc == 0 && i < args.count; i++) {
        const struct scmp_arg_cmp *c = &args.cmp[i];
        rc = buf_printf(j->out, err,
                        "%s{\"index\":%u,\"value\":%llu,\"valueTwo\":%llu,\"op\":\"SCMP_CMP_%s\"}",
                        i > 0 ? "," : "", c->arg, (unsigned long long)c->datum_a,
                        (unsigned long long)c->datum_b, ops[c->op]);
    }
    j->comma = ",\n";
    return rc == 0 ? buf_puts(j->out, "]}", err) : -1;
}

/* Process 1 has yet to load the program, which has the last word. Until then three things are
 * looked at less closely: that call itself; huge pages by shmget; which sockets are made, and which
 * options they get, because the 32-bit table has one call for all of theirs, whose arguments no
 * filter sees, and libseccomp does not take a rule that would look at them. */
int seccomp_json_rule(struct seccomp_json *j, const char *name, uint32_t action,
                      struct seccomp_json_args args, struct err *err) {
    static const struct seccomp_json_args any = {0, NULL};
    if (strcmp(name, "shmget") == 0 && args.count > 0) { /* one call for all of theirs, too */
        return action == SCMP_ACT_ALLOW ? seccomp_json_write(j, name, action, any, err) : 0;
    }
    static const char *const whole[] = {"seccomp", "socket", "socketpair", "setsockopt"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (strcmp(name, whole[i]) == 0) {
            uint32_t before = j->whole;
            j->whole |= 1u << i;
            return before & 1u << i ? 0 : seccomp_json_write(j, name, SCMP_ACT_ALLOW, any, err);
        }
    }
    return seccomp_json_write(j, name, action, args, err);
}

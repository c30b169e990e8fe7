#include <stdio.h>
#include <string.h>

#include "rule.h"

/* What no rule can lift: the rules themselves, the trust in them, the journal. */
static const char rule_builtin_guard[] =
    "deny write '%s/**' '%s/**' /etc/pinfold/** .pinfold/** \"Pinfold's own rules and journal\"\n"
    "deny read '%s/**' '%s/**' \"Pinfold's own rules, tokens, keys and journal\"\n";

/* What holds until an allow rule says otherwise. */
static const char rule_builtin_default[] =
    "deny read **/.env **/.env.{local,dev,development,prod,production,staging,test} "
    "**/.envrc \"secrets\"\n"
    "deny read **/id_{rsa,dsa,ecdsa,ed25519,ecdsa_sk,ed25519_sk} **/*.{pem,key,p12,pfx,jks} "
    "\"keys\"\n"
    "deny read **/.{netrc,pgpass,pypirc,git-credentials,htpasswd} **/.docker/config.json "
    "**/.kube/config **/.aws/credentials **/.config/gh/hosts.yml \"tokens\"\n"
    "deny read ~/.{ssh,gnupg,aws,azure,kube,docker}/** ~/.config/gcloud/** \"keys and tokens\"\n"
    "deny write ~/.{ssh,gnupg}/id_* \"keys\"\n"
    "deny write **/.{claude,codex,agents,gemini,cursor}/** \"the settings of an agent\"\n"
    "deny write **/.git/hooks/** **/.git/config \"git runs what stands there\"\n";

int rule_load_guard(struct rule_set *set, const char *config_dir, const char *state_dir,
                    struct err *err) {
    char text[16384];
    int n;

    if (strpbrk(config_dir, "'\n{}*") != NULL || strpbrk(state_dir, "'\n{}*") != NULL)
        return err_set(
            err, ERR_INVALID, 0,
            "the directory of settings or of the journal has a quote, a brace, a star or "
            "a newline in its name");
    n = snprintf(text, sizeof(text), rule_builtin_guard, config_dir, state_dir, config_dir,
                 state_dir);
    if (n < 0 || (size_t)n >= sizeof(text))
        return err_set(err, ERR_LIMIT, 0, "the path of a directory is too long");
    return rule_load(set, RULE_GUARD, true, "(guard)", text, (size_t)n, err);
}

int rule_load_default(struct rule_set *set, struct err *err) {
    return rule_load(set, RULE_DEFAULT, true, "(default)", rule_builtin_default,
                     sizeof(rule_builtin_default) - 1, err);
}

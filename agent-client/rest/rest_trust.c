#include "rest_trust.h"

#include <errno.h>
#include <string.h>

/* OpenSSL's X509_V_ERR_…, which libcurl hands on. */
enum rest_trust_verdict {
    REST_TRUST_NOT_YET = 9,
    REST_TRUST_EXPIRED = 10,
    REST_TRUST_SELF_SIGNED = 18,
    REST_TRUST_SELF_SIGNED_IN_CHAIN = 19,
    REST_TRUST_NO_ISSUER_LOCALLY = 20,
    REST_TRUST_NO_LEAF_SIGNATURE = 21,
};

void rest_trust_set_up(CURL *easy, const struct target *target) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (target->ca[0] == '\0')
        return;
    /* This authority instead of all those that the machine trusts. */
    curl_easy_setopt(easy, CURLOPT_CAINFO, target->ca);
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
}

static int rest_trust_untrusted(CURL *easy, const struct target *target, const char *why,
                                struct err *err) {
    long verdict = 0;

    /* The name is compared by libcurl, which has no verdict of its own for it. */
    if (strstr(why, "target host") != NULL)
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "the certificate of %s is made out to another name; use a name that it is "
                       "for in PINFOLD_URL",
                       target->url);
    curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verdict);
    switch (verdict) {
    case REST_TRUST_NOT_YET:
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "the certificate of %s is not valid yet; is this machine's clock right?",
                       target->url);
    case REST_TRUST_EXPIRED:
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "the certificate of %s has expired; its administrator must renew it",
                       target->url);
    case REST_TRUST_SELF_SIGNED:
    case REST_TRUST_SELF_SIGNED_IN_CHAIN:
    case REST_TRUST_NO_ISSUER_LOCALLY:
    case REST_TRUST_NO_LEAF_SIGNATURE:
        if (target->ca[0] != '\0')
            return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                           "the certificate of %s was not signed by the authority in %s "
                           "(PINFOLD_CA)",
                           target->url, target->ca);
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "the certificate of %s was signed by an authority that this machine does "
                       "not know; if it is your own, name the file with its certificate in "
                       "PINFOLD_CA or with --ca",
                       target->url);
    default:
        return err_set(err, ERR_SYSTEM, ECONNREFUSED, "the certificate of %s is not trusted: %s",
                       target->url, why);
    }
}

int rest_trust_failed(CURL *easy, CURLcode rc, const struct target *target, const char *why,
                      struct err *err) {
    switch (rc) {
    case CURLE_PEER_FAILED_VERIFICATION:
        return rest_trust_untrusted(easy, target, why, err);
    case CURLE_SSL_CACERT_BADFILE:
        return err_set(err, ERR_INVALID, ECONNREFUSED,
                       "PINFOLD_CA or --ca names %s, which holds no certificate or cannot be read",
                       target->ca);
    case CURLE_SSL_CONNECT_ERROR:
        return err_set(err, ERR_SYSTEM, ECONNREFUSED,
                       "%s does not speak HTTPS with us (TLS 1.2 or newer): %s", target->url, why);
    default:
        return 0;
    }
}

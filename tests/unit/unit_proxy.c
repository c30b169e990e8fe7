#include "proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "unit.h"

static struct sockaddr_storage address(const char *text) {
    struct sockaddr_storage s = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&s;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
        s.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
        s.ss_family = AF_INET6;
    return s;
}

static void trust(struct proxy *p, const char *const *nets) {
    struct err err;
    memset(p, 0, sizeof(*p));
    for (; *nets != NULL; nets++)
        unit_works(proxy_net_parse(*nets, &p->nets[p->count++], &err), err);
}

static void client(const char *peer, const char *forwarded, const char *xff, const char *is) {
    static const char *const nets[] = {"10.0.0.0/8", "192.0.2.7", "2001:db8::/33", NULL};
    struct proxy p;
    struct sockaddr_storage from = address(peer);
    char out[PROXY_ADDRESS_SIZE];
    trust(&p, nets);
    proxy_client(&p, (struct sockaddr *)&from, forwarded, xff, out);
    assert_string_equal(out, is);
}

static void test_only_who_is_trusted_may_say_so(void **state) {
    (void)state;
    client("198.51.100.1", NULL, "203.0.113.9", "198.51.100.1");
    client("198.51.100.1", "for=203.0.113.9", NULL, "198.51.100.1");
    client("10.1.2.3", NULL, "203.0.113.9", "203.0.113.9");
    client("10.1.2.3", NULL, NULL, "10.1.2.3");
    client("10.1.2.3", NULL, "", "10.1.2.3");
    client("192.0.2.7", NULL, "203.0.113.9", "203.0.113.9");
    client("192.0.2.8", NULL, "203.0.113.9", "192.0.2.8");
    client("::ffff:10.1.2.3", NULL, "203.0.113.9", "203.0.113.9");
    client("2001:db8:7fff::1", NULL, "2001:DB9::1", "2001:db9::1");
    client("2001:db8:8000::1", NULL, "2001:db9::1", "2001:db8:8000::1");
}

static void test_the_first_from_the_right_who_is_not_trusted_is_the_client(void **state) {
    (void)state;
    client("10.0.0.1", NULL, "1.1.1.1, 203.0.113.9, 10.0.0.2", "203.0.113.9");
    client("10.0.0.1", NULL, "1.1.1.1,203.0.113.9", "203.0.113.9");
    client("10.0.0.1", NULL, "10.9.9.9, 10.0.0.2", "10.9.9.9");
    client("10.0.0.1", "for=1.1.1.1, for=203.0.113.9;proto=https, for=10.0.0.2", "8.8.8.8",
           "203.0.113.9");
    client("10.0.0.1", "proto=https;By=10.0.0.1;FOR=\"203.0.113.9:4711\"", NULL, "203.0.113.9");
    client("10.0.0.1", "for=\"[2001:db9::17]:4711\"", NULL, "2001:db9::17");
    client("10.0.0.1", NULL, "203.0.113.9:80", "203.0.113.9");
    client("10.0.0.1", NULL, "[2001:db9::17]:80", "2001:db9::17");
    client("10.0.0.1", NULL, "2001:db9::17", "2001:db9::17");
}

static void test_what_is_no_address_ends_the_search(void **state) {
    (void)state;
    client("10.0.0.1", NULL, "unknown", "10.0.0.1");
    client("10.0.0.1", NULL, "1.1.1.1, nonsense, 10.0.0.2", "10.0.0.2");
    client("10.0.0.1", "for=_hidden", NULL, "10.0.0.1");
    client("10.0.0.1", "proto=https", NULL, "10.0.0.1");
    client("10.0.0.1", "for=\"203.0.113.9", NULL, "10.0.0.1");
    client("10.0.0.1", "for=\"a,for=1.1.1.1\", for=203.0.113.9", NULL, "203.0.113.9");
    client("10.0.0.1", NULL, ",,,", "10.0.0.1");
    client("10.0.0.1", NULL, "203.0.113.9\\n x", "10.0.0.1");
    client("10.0.0.1", NULL, "203.0.113.9,", "203.0.113.9");
    client("10.0.0.1", "for=\"\\", NULL, "10.0.0.1");
}

static void test_a_long_list_counts_from_its_end(void **state) {
    (void)state;
    char list[4096] = "";
    for (int i = 0; i < 200; i++)
        strncat(list, "1.1.1.1, ", sizeof(list) - strlen(list) - 1);
    strncat(list, "203.0.113.9, 10.0.0.7", sizeof(list) - strlen(list) - 1);
    client("10.0.0.1", NULL, list, "203.0.113.9");
}

static void test_networks_are_checked(void **state) {
    (void)state;
    static const char *const bad[] = {"",           "x",           "10.0.0.0/33", "10.0.0.0/",
                                      "10.0.0.0/x", "10.0.0.1/8",  "::/129",      "2001:db8::1/32",
                                      "1.2.3",      "10.0.0.0/8 ", "10.0.0.0/-1"};
    static const char *const good[] = {"0.0.0.0/0", "::/0", "127.0.0.1", "::1", "10.0.0.0/8"};
    struct err err;
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(proxy_check(bad[i], &err), err, ERR_INVALID);
    for (size_t i = 0; i < UNIT_COUNT(good); i++)
        unit_works(proxy_check(good[i], &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_who_is_trusted_may_say_so),
        cmocka_unit_test(test_the_first_from_the_right_who_is_not_trusted_is_the_client),
        cmocka_unit_test(test_what_is_no_address_ends_the_search),
        cmocka_unit_test(test_a_long_list_counts_from_its_end),
        cmocka_unit_test(test_networks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sockets: families and protocols that no program inside needs, each by a number of its own, since
 * a kernel loads a module when one is asked for. */
#include "attempt.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAMILIES "socket families"
#define INTERFACES "network"

#define FAMILY_OF(name, family, type, protocol)                                                    \
    ATTEMPT(FAMILIES, family_##name, FAMILY, "a socket of family " #name) {                        \
        return TRY(socket(family, type, protocol));                                                \
    }
FAMILY_OF(ax25, 3, SOCK_DGRAM, 0)
FAMILY_OF(ipx, 4, SOCK_DGRAM, 0)
FAMILY_OF(appletalk, 5, SOCK_DGRAM, 0)
FAMILY_OF(atmpvc, 8, SOCK_DGRAM, 0)
FAMILY_OF(x25, 9, SOCK_SEQPACKET, 0)
FAMILY_OF(rds, 21, SOCK_SEQPACKET, 0)
FAMILY_OF(llc, 26, SOCK_STREAM, 0)
FAMILY_OF(infiniband, 27, SOCK_RAW, 0)
FAMILY_OF(mpls, 28, SOCK_RAW, 0)
FAMILY_OF(rxrpc, 33, SOCK_DGRAM, 2)
FAMILY_OF(phonet, 35, SOCK_SEQPACKET, 0)
FAMILY_OF(caif, 37, SOCK_SEQPACKET, 0)
FAMILY_OF(nfc, 39, SOCK_SEQPACKET, 0)
FAMILY_OF(kcm, 41, SOCK_DGRAM, 0)
FAMILY_OF(qipcrtr, 42, SOCK_DGRAM, 0)
FAMILY_OF(smc, 43, SOCK_STREAM, 0)
FAMILY_OF(mctp, 45, SOCK_DGRAM, 0)
FAMILY_OF(pppox, 24, SOCK_STREAM, 1)

#define PROTOCOL(name, family, type, protocol)                                                     \
    ATTEMPT(FAMILIES, protocol_##name, FAMILY " EINVAL", "a socket for " #name) {                  \
        return TRY(socket(family, type, protocol));                                                \
    }
PROTOCOL(sctp, AF_INET, SOCK_STREAM, 132)
PROTOCOL(dccp, AF_INET, 6, 33)
PROTOCOL(mptcp, AF_INET, SOCK_STREAM, 262)
PROTOCOL(udplite, AF_INET, SOCK_DGRAM, 136)
PROTOCOL(raw_ip, AF_INET, SOCK_RAW, 255)
PROTOCOL(raw_tcp, AF_INET, SOCK_RAW, 6)
PROTOCOL(raw_icmp6, AF_INET6, SOCK_RAW, 58)
PROTOCOL(l2tp, AF_INET, SOCK_DGRAM, 115)
PROTOCOL(netlink_audit, AF_NETLINK, SOCK_RAW, 9)
PROTOCOL(netlink_netfilter, AF_NETLINK, SOCK_RAW, 12)
PROTOCOL(netlink_uevent, AF_NETLINK, SOCK_RAW, 15)
PROTOCOL(netlink_generic, AF_NETLINK, SOCK_RAW, 16)
PROTOCOL(netlink_crypto, AF_NETLINK, SOCK_RAW, 21)
PROTOCOL(netlink_diag, AF_NETLINK, SOCK_RAW, 4)
PROTOCOL(netlink_xfrm, AF_NETLINK, SOCK_RAW, 6)
PROTOCOL(netlink_selinux, AF_NETLINK, SOCK_RAW, 7)
PROTOCOL(netlink_rdma, AF_NETLINK, SOCK_RAW, 20)

ATTEMPT(FAMILIES, family_high, FAMILY " EINVAL", "a packet socket with high bits in the family") {
    return TRY(syscall(SYS_socket, 0x100000000L | 17, SOCK_RAW, 0x300));
}

ATTEMPT(FAMILIES, pair_of_inet, FAMILY " EOPNOTSUPP", "a socket pair of another family") {
    int two[2];
    return TRY(socketpair(40, SOCK_STREAM, 0, two));
}

/* On the sockets that are allowed: what needs CAP_NET_ADMIN over the host's network. */

static int family_any(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return fd >= 0 ? fd : socket(AF_UNIX, SOCK_DGRAM, 0);
}

static long family_flags(short flags) {
    struct ifreq r = {0};
    int fd = family_any();
    NEED(fd >= 0);
    memcpy(r.ifr_name, "lo", 3);
    r.ifr_flags = flags;
    return ioctl(fd, SIOCSIFFLAGS, &r);
}

ATTEMPT(INTERFACES, interface_down, REFUSED, "taking lo down") {
    return TRY(family_flags(0));
}

ATTEMPT(INTERFACES, interface_promiscuous, REFUSED, "promiscuous mode") {
    return TRY(family_flags((short)(IFF_UP | IFF_PROMISC)));
}

ATTEMPT(INTERFACES, interface_address, REFUSED, "an address for lo") {
    struct ifreq r = {0};
    struct sockaddr_in *a = (void *)&r.ifr_addr;
    int fd = family_any();
    NEED(fd >= 0);
    memcpy(r.ifr_name, "lo", 3);
    a->sin_family = AF_INET;
    a->sin_addr.s_addr = 0x0100000a;
    return TRY(ioctl(fd, SIOCSIFADDR, &r));
}

/* Any socket takes these from anybody, and the kernel loads the module first. */
ATTEMPT(INTERFACES, bridge_module, "EPERM", "the module for bridges, by asking which there are") {
    unsigned long question[4] = {0};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    NEED(fd >= 0);
    return TRY(ioctl(fd, SIOCGIFBR, question));
}

ATTEMPT(INTERFACES, vlan_module, "EPERM", "the module for VLANs, by asking which there are") {
    char question[64] = {0};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    NEED(fd >= 0);
    return TRY(ioctl(fd, SIOCGIFVLAN, question));
}

ATTEMPT(INTERFACES, bridge, REFUSED " EOPNOTSUPP ENOPKG", "a bridge of interfaces") {
    int fd = family_any();
    NEED(fd >= 0);
    return TRY(ioctl(fd, 0x89a0, "br0"));
}

#define OPTION(name, level, option, what)                                                          \
    ATTEMPT(INTERFACES, option_##name, REFUSED " ENOPROTOOPT EOPNOTSUPP", what) {                  \
        int one = 1, fd = family_any();                                                            \
        NEED(fd >= 0);                                                                             \
        return TRY(setsockopt(fd, level, option, &one, sizeof one));                               \
    }
OPTION(mark, SOL_SOCKET, 36, "a mark on packets (SO_MARK)")
OPTION(force_buffer, SOL_SOCKET, 33, "a receive buffer beyond the host's bound")
OPTION(debug, SOL_SOCKET, 1, "SO_DEBUG")
OPTION(transparent, 0, 19, "IP_TRANSPARENT")
OPTION(header, 0, 3, "headers of one's own (IP_HDRINCL)")
OPTION(netfilter, 0, 64, "the tables of netfilter")

/* SO_PEERCRED and SCM_CREDENTIALS: no other than one's own can be shown. */
ATTEMPT(INTERFACES, forged_credentials, "EPERM", "a message that says it is from root") {
    int two[2];
    char room[CMSG_SPACE(12)] = {0}, byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room};
    m.msg_controllen = sizeof room;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = 2;
    c->cmsg_len = CMSG_LEN(12);
    memcpy(CMSG_DATA(c), (int[3]){1, 0, 0}, 12);
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, two) == 0);
    return TRY(sendmsg(two[1], &m, 0));
}

ATTEMPT(INTERFACES, low_port, "EACCES EPERM EAFNOSUPPORT EADDRINUSE OK",
        "a port below 1024: of this jail's own lo only") {
    struct sockaddr_in a = {.sin_family = AF_INET};
    int fd = (int)TRY(socket(AF_INET, SOCK_STREAM, 0));
    a.sin_port = htons(80);
    return fd < 0 ? -1 : TRY(bind(fd, (void *)&a, sizeof a));
}

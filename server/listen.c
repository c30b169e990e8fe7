#include "listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "fd.h"

#define LISTEN_BACKLOG 1024

static int listen_resolve(const char *address, uint16_t port, struct addrinfo **out,
                          struct err *err) {
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(address, service, &hints, out);
    if (rc != 0)
        return err_set(err, ERR_INVALID, 0, "%s is not a numeric address", address);
    return 0;
}

static int listen_bind(int fd, const struct addrinfo *to, struct err *err) {
    int one = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
        return err_sys(err, "preparing the listening socket");
    if (bind(fd, to->ai_addr, to->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return -1;
    return 0;
}

int listen_open(const char *address, uint16_t port, uint16_t *bound, struct err *err) {
    struct addrinfo *to = NULL;
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    if (listen_resolve(address, port, &to, err) < 0)
        return -1;
    fd_cleanup int fd =
        socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    int rc = fd < 0 ? err_sys(err, "making the listening socket") : 0;
    if (rc == 0 && listen_bind(fd, to, err) < 0) {
        if (errno == EADDRINUSE)
            rc = err_set(err, ERR_STATE, errno,
                         "port %u of %s is in use by another program; choose another with --port",
                         port, address);
        else
            rc = err_sys(err, "listening on port %u of %s", port, address);
    }
    freeaddrinfo(to);
    if (rc < 0)
        return -1;
    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0)
        return err_sys(err, "asking for the port");
    *bound = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                              : ((struct sockaddr_in *)&name)->sin_port);
    return fd_steal(&fd);
}

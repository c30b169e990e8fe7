/* A server on the loopback that answers every request with the same bytes, whatever they are. */
#pragma once

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "fuzz.h"

struct fuzz_server {
    int fd;
    unsigned port;
    pthread_mutex_t mutex;
    void *data; /* under the mutex, as is the size; owned: a client need not wait for all of it */
    size_t size;
};

static inline void *fuzz_serve(void *arg) {
    struct fuzz_server *s = arg;
    char request[65536];
    for (;;) {
        int one = accept(s->fd, NULL, NULL);
        if (one < 0)
            continue;
        struct timeval patience = {.tv_sec = 2};
        setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        size_t len = 0;
        ssize_t n;
        while (len < sizeof(request) && memmem(request, len, "\r\n\r\n", 4) == NULL &&
               (n = recv(one, request + len, sizeof(request) - len, 0)) > 0)
            len += (size_t)n;
        pthread_mutex_lock(&s->mutex);
        (void)!send(one, s->data, s->size, MSG_NOSIGNAL);
        pthread_mutex_unlock(&s->mutex);
        close(one);
    }
    return NULL;
}

/* The only one of the process, once it is asked for. */
static inline struct fuzz_server *fuzz_server(void) {
    static struct fuzz_server server = {.fd = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    pthread_t thread;
    if (server.fd >= 0)
        return &server;
    server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(server.fd >= 0 && bind(server.fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    fuzz_require(listen(server.fd, 16) == 0);
    fuzz_require(getsockname(server.fd, (struct sockaddr *)&at, &len) == 0);
    server.port = ntohs(at.sin_port);
    fuzz_require(pthread_create(&thread, NULL, fuzz_serve, &server) == 0);
    pthread_detach(thread);
    return &server;
}

static inline void fuzz_answer(struct fuzz_server *s, const void *data, size_t size) {
    void *copy = malloc(size + 1);
    fuzz_require(copy != NULL);
    memcpy(copy, data, size);
    pthread_mutex_lock(&s->mutex);
    free(s->data);
    s->data = copy;
    s->size = size;
    pthread_mutex_unlock(&s->mutex);
}

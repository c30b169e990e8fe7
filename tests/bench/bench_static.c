#include "bench_static.h"

#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench_service.h"
#include "fd.h"

#define BENCH_STATIC_STOP_MS 2000u

/* Of one request. */
struct bench_static_put {
    int fd;
};

static enum MHD_Result bench_static_reply(struct MHD_Connection *connection, unsigned status,
                                          struct MHD_Response *response) {
    if (!response)
        return MHD_NO;
    enum MHD_Result rc = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result bench_static_get(struct MHD_Connection *connection, const char *url) {
    uint64_t size = strtoull(url + 1, NULL, 10);
    int fd = memfd_create("bench-static", MFD_CLOEXEC);
    if (fd < 0)
        return MHD_NO;
    if (ftruncate(fd, (off_t)size) < 0) {
        close(fd);
        return MHD_NO;
    }
    return bench_static_reply(connection, MHD_HTTP_OK,
                              MHD_create_response_from_fd64(size, fd)); /* takes fd */
}

static enum MHD_Result bench_static_serve(void *arg, struct MHD_Connection *connection,
                                          const char *url, const char *method, const char *version,
                                          const char *data, size_t *size, void **state) {
    (void)arg;
    (void)version;
    struct bench_static_put *put = *state;
    if (!put) {
        put = calloc(1, sizeof(*put));
        if (!put)
            return MHD_NO;
        put->fd = strcmp(method, "PUT") == 0 ? memfd_create("bench-static", MFD_CLOEXEC) : -1;
        *state = put;
        return MHD_YES;
    }
    if (put->fd < 0)
        return bench_static_get(connection, url);
    if (*size) {
        if (fd_write_all(put->fd, data, *size, NULL) < 0)
            return MHD_NO;
        *size = 0;
        return MHD_YES;
    }
    return bench_static_reply(connection, MHD_HTTP_CREATED,
                              MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT));
}

static void bench_static_over(void *arg, struct MHD_Connection *connection, void **state,
                              enum MHD_RequestTerminationCode why) {
    (void)arg;
    (void)connection;
    (void)why;
    struct bench_static_put *put = *state;
    if (put && put->fd >= 0)
        close(put->fd);
    free(put);
    *state = NULL;
}

/* The process that serves. Tells its port and sleeps until it is killed. */
static void bench_static_main(int out) {
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                         bench_static_serve, NULL, MHD_OPTION_NOTIFY_COMPLETED, bench_static_over,
                         NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)1 << 17, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    unsigned port = info ? info->port : 0;
    if (write(out, &port, sizeof(port)) == sizeof(port))
        for (;;)
            pause();
    _exit(1);
}

int bench_static_start(struct bench_static *s, struct err *err) {
    int ends[2];
    *s = (struct bench_static){0};
    if (pipe(ends) < 0)
        return err_sys(err, "make a pipe");
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0) {
        close(ends[0]);
        signal(SIGTERM, SIG_DFL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
            _exit(1);
        bench_static_main(ends[1]);
    }
    close(ends[1]);
    ssize_t n = s->pid < 0 ? -1 : read(ends[0], &s->port, sizeof(s->port));
    close(ends[0]);
    if (n == (ssize_t)sizeof(s->port) && s->port)
        return 0;
    if (s->pid < 0)
        s->pid = 0;
    bench_static_stop(s);
    return err_set(err, ERR_STATE, 0, "the static file server did not start");
}

void bench_static_stop(struct bench_static *s) {
    if (s->pid <= 0)
        return;
    kill(s->pid, SIGKILL);
    bench_service_reap(s->pid, BENCH_STATIC_STOP_MS);
    s->pid = 0;
}

/* Theory of operation. Two processes: one reads the files and writes a tar into a pipe
 * (libarchive), the other sends what comes out of the pipe as the body of a request (libcurl). Both
 * have nothing open but what they need. The tar is complete or the request fails: libcurl is told
 * to break it off when the writer of the tar did not end well. */
#include "load.h"

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "image_pin.h"
#include "str.h"

#define LOAD_ANSWER_MAX 16384u
#define LOAD_DIR 0 /* descriptors of the child, by number */
#define LOAD_SOCK 1

/* ---- the tar ---- */

/* Everything is root's, as it is in a native jail, where no id of the image is known. */
static void load_own(struct archive_entry *entry) {
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_set_perm(entry, archive_entry_perm(entry) & (mode_t)01777);
}

static int load_put(struct archive *tar, const char *data, size_t len) {
    return archive_write_data(tar, data, len) == (la_ssize_t)len ? 0 : -1;
}

/* Holes are sent as what they read as. */
static int load_hole(struct archive *tar, la_int64_t len) {
    static const char zeros[4096];
    int rc = len < 0 ? -1 : 0;
    while (rc == 0 && len > 0) {
        size_t part = len < (la_int64_t)sizeof zeros ? (size_t)len : sizeof zeros;
        rc = load_put(tar, zeros, part);
        len -= (la_int64_t)part;
    }
    return rc;
}

static int load_data(struct archive *disk, struct archive *tar, la_int64_t size) {
    la_int64_t done = 0, at;
    const void *block;
    size_t len;
    int rc;
    while ((rc = archive_read_data_block(disk, &block, &len, &at)) == ARCHIVE_OK) {
        if (load_hole(tar, at - done) != 0 || load_put(tar, block, len) != 0) {
            return -1;
        }
        done = at + (la_int64_t)len;
    }
    return rc == ARCHIVE_EOF ? load_hole(tar, size - done) : -1;
}

static int load_entry(struct archive *disk, struct archive *tar,
                      struct archive_entry_linkresolver *links, struct archive_entry *entry) {
    struct archive_entry *spare = NULL;
    load_own(entry);
    archive_entry_linkify(links, &entry, &spare); /* the tar format keeps none back */
    if (entry == NULL || spare != NULL || archive_write_header(tar, entry) != ARCHIVE_OK) {
        return -1;
    }
    return archive_entry_size(entry) > 0 ? load_data(disk, tar, archive_entry_size(entry)) : 0;
}

static int load_walk(struct archive *disk, struct archive *tar,
                     struct archive_entry_linkresolver *links) {
    for (;;) {
        struct archive_entry *entry = archive_entry_new();
        int rc = entry != NULL ? archive_read_next_header2(disk, entry) : ARCHIVE_FATAL;
        if (rc == ARCHIVE_OK && archive_read_disk_can_descend(disk)) {
            rc = archive_read_disk_descend(disk);
        }
        if (rc == ARCHIVE_OK && load_entry(disk, tar, links, entry) != 0) {
            rc = ARCHIVE_FATAL;
        }
        archive_entry_free(entry);
        if (rc != ARCHIVE_OK) {
            return rc == ARCHIVE_EOF ? 0 : -1;
        }
    }
}

/* Was all that was read still the image of that name and digest? Whoever removes one gives it
 * another name before its first file goes: to look afterwards is enough. */
static int load_still(const struct load_wish *w) {
    struct stat own, now;
    uint8_t sha256[32];
    char hex[2 * sizeof sha256 + 1];
    const char *dash = strrchr(w->ref, '-');
    fd_cleanup int images = openat(LOAD_DIR, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dash == NULL || images < 0 || fstat(LOAD_DIR, &own) != 0 ||
        fstatat(images, w->name, &now, AT_SYMLINK_NOFOLLOW) != 0 || own.st_dev != now.st_dev ||
        own.st_ino != now.st_ino || image_pin_read(images, w->name, sha256, NULL) != 0) {
        return -1;
    }
    (void)sodium_bin2hex(hex, sizeof hex, sha256, sizeof sha256);
    return strcmp(hex, dash + 1) == 0 ? 0 : -1;
}

/* What is not to be taken does not get the end of a tar either. */
static int load_end(struct archive *tar, int rc) {
    if (rc == 0) {
        return archive_write_close(tar) == ARCHIVE_OK ? 0 : -1;
    }
    (void)archive_write_fail(tar);
    return -1;
}

/* The files below the current directory, to `out`. */
static int load_tar(const struct load_wish *w, int out) {
    struct archive *disk = archive_read_disk_new(), *tar = archive_write_new();
    struct archive_entry_linkresolver *links = archive_entry_linkresolver_new();
    int rc = -1;
    if (disk != NULL && tar != NULL && links != NULL &&
        archive_write_set_format_pax_restricted(tar) == ARCHIVE_OK &&
        archive_write_open_fd(tar, out) == ARCHIVE_OK &&
        archive_read_disk_set_symlink_physical(disk) == ARCHIVE_OK &&
        archive_read_disk_set_behavior(
            disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_FFLAGS |
                      ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS) == ARCHIVE_OK &&
        archive_read_disk_open(disk, ".") == ARCHIVE_OK) {
        archive_entry_linkresolver_set_strategy(links, archive_format(tar));
        rc = load_walk(disk, tar, links);
        rc = load_end(tar, rc == 0 ? load_still(w) : -1);
    }
    archive_entry_linkresolver_free(links);
    archive_write_free(tar);
    archive_read_free(disk);
    return rc;
}

static pid_t load_start_tar(const struct load_wish *w, int *from, struct err *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return err_sys(err, "making a pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        fd_close(&ends[0]);
        (void)close(LOAD_SOCK);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        _exit(load_tar(w, ends[1]) == 0 ? 0 : 1);
    }
    fd_close(&ends[1]);
    if (pid < 0) {
        (void)err_sys(err, "forking the reader of an image");
        fd_close(&ends[0]);
        return -1;
    }
    *from = ends[0];
    return pid;
}

/* ---- the request ---- */

struct load {
    int from; /* the tar */
    pid_t tar;
    size_t len;
    char answer[LOAD_ANSWER_MAX + 1];
};

/* The end of the pipe is the end of the tar only when its writer says so. */
static size_t load_read(char *to, size_t size, size_t count, void *arg) {
    struct load *l = arg;
    ssize_t got;
    int status = 0;
    do {
        got = read(l->from, to, size * count);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        return (size_t)got;
    }
    pid_t pid = l->tar;
    l->tar = -1;
    if (got < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return CURL_READFUNC_ABORT;
    }
    return 0;
}

/* The first part of the answer is enough: it ends with the image's id, or with the error. */
static size_t load_write(char *from, size_t size, size_t count, void *arg) {
    struct load *l = arg;
    size_t room = LOAD_ANSWER_MAX - l->len, len = size * count < room ? size * count : room;
    memcpy(l->answer + l->len, from, len);
    l->len += len;
    return size * count;
}

/* The tag stands in the name: Podman knows it nowhere else. */
static int load_url(CURL *h, const struct load_wish *w, char *url, size_t size) {
    char *ref = curl_easy_escape(h, w->ref, 0);
    int n = ref != NULL ? snprintf(url, size, "http://engine%s/images/create?fromSrc=-&repo=%s",
                                   w->prefix, ref)
                        : -1;
    curl_free(ref);
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

#define LOAD_SET(option, value) rc = rc == CURLE_OK ? curl_easy_setopt(h, option, value) : rc

static CURLcode load_set(CURL *h, const struct load_wish *w, struct load *l, const char *url,
                         struct curl_slist *head) {
    CURLcode rc = CURLE_OK;
    LOAD_SET(CURLOPT_UNIX_SOCKET_PATH, w->engine);
    LOAD_SET(CURLOPT_URL, url);
    LOAD_SET(CURLOPT_PROXY, "");
    LOAD_SET(CURLOPT_NOSIGNAL, 1L);
    LOAD_SET(CURLOPT_TIMEOUT, (long)LOAD_SECONDS);
    LOAD_SET(CURLOPT_CONNECTTIMEOUT, 10L);
    LOAD_SET(CURLOPT_POST, 1L);
    LOAD_SET(CURLOPT_HTTPHEADER, head);
    LOAD_SET(CURLOPT_READFUNCTION, load_read);
    LOAD_SET(CURLOPT_READDATA, l);
    LOAD_SET(CURLOPT_WRITEFUNCTION, load_write);
    LOAD_SET(CURLOPT_WRITEDATA, l);
    return rc;
}

/* The engine answers 200 before it has unpacked anything: what went wrong stands in the body. */
static int load_check(CURL *h, const struct load *l, CURLcode rc, struct err *err) {
    long status = 0;
    if (rc == CURLE_ABORTED_BY_CALLBACK) {
        return err_set(err, ERR_SYSTEM, EIO,
                       "its files cannot be read, or it is being replaced; try again");
    }
    if (rc != CURLE_OK) {
        return err_set(err, ERR_SYSTEM, rc == CURLE_OPERATION_TIMEDOUT ? ETIMEDOUT : EIO,
                       "giving an image to the Docker engine: %s", curl_easy_strerror(rc));
    }
    (void)curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 || strstr(l->answer, "\"error\"") != NULL ||
        strstr(l->answer, "sha256:") == NULL) {
        return err_set(err, ERR_SYSTEM, EIO, "the Docker engine took no image (%ld): %.150s",
                       status, l->answer);
    }
    return 0;
}

static int load_send(const struct load_wish *w, struct load *l, struct err *err) {
    char url[1024];
    CURL *h = curl_easy_init();
    struct curl_slist *head = NULL, *more;
    if (h != NULL && (more = curl_slist_append(head, "Content-Type: application/x-tar")) != NULL) {
        head = more;
    }
    if (head != NULL && (more = curl_slist_append(head, "Transfer-Encoding: chunked")) != NULL) {
        head = more;
    }
    int rc = -1;
    if (head == NULL || load_url(h, w, url, sizeof url) != 0 ||
        load_set(h, w, l, url, head) != CURLE_OK) {
        (void)err_set(err, ERR_SYSTEM, ENOMEM, "asking the Docker engine to take an image");
    } else {
        rc = load_check(h, l, curl_easy_perform(h), err);
    }
    curl_slist_free_all(head);
    curl_easy_cleanup(h);
    return rc;
}

static int load_all(const struct load_wish *w, struct err *err) {
    struct load *l = calloc(1, sizeof *l);
    fd_cleanup int root =
        openat(LOAD_DIR, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = -1;
    if (l == NULL || root < 0 || fchdir(root) != 0) {
        (void)err_sys(err, "opening the files of an image");
    } else if ((l->tar = load_start_tar(w, &l->from, err)) > 0) {
        rc = load_send(w, l, err);
        fd_close(&l->from);
    }
    free(l);
    return rc;
}

static void __attribute__((noreturn)) load_child(const struct load_wish *w) {
    struct load_report report = {0};
    struct err err;
    err_clear(&err);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    if (load_all(w, &err) != 0) {
        report.code = err.code != 0 ? err.code : EIO;
        (void)snprintf(report.text, sizeof report.text, "%.250s", err.text);
    }
    _exit(fd_send(LOAD_SOCK, &report, sizeof report, NULL, 0, NULL) == 0 ? 0 : 1);
}

int load_start(const struct load_wish *wish, int *sock, pid_t *child, struct err *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "making a socket");
    }
    pid_t pid = fork();
    if (pid == 0) {
        /* Away from where the other one goes, first. */
        int dir = fcntl(wish->image, F_DUPFD, 10), end = fcntl(pair[1], F_DUPFD, 10);
        if (dir < 0 || end < 0 || dup2(dir, LOAD_DIR) < 0 || dup2(end, LOAD_SOCK) < 0 ||
            syscall(SYS_close_range, 2, ~0U, 0) != 0) {
            _exit(1);
        }
        load_child(wish);
    }
    fd_close(&pair[1]);
    if (pid < 0) {
        (void)err_sys(err, "forking a process that gives an image to the engine");
        fd_close(&pair[0]);
        return -1;
    }
    *sock = pair[0];
    *child = pid;
    return 0;
}

#include "etc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

/* Generous for any set of packages, and within the tmpfs that rootfs.c makes. */
#define ETC_ENTRIES_MAX 8192u
#define ETC_BYTES_MAX (24u << 20)
#define ETC_DEPTH_MAX 5u

#define ETC_HOSTS                                                                                  \
    "127.0.0.1 localhost pinfold\n"                                                                \
    "::1 localhost ip6-localhost ip6-loopback pinfold\n"

/* Files of our own: what the host's would say is the host's business. */
struct etc_text {
    const char *name;
    const char *text;
};

static const struct etc_text etc_texts[] = {
    {"passwd", "root:x:0:0:root:/root:/bin/sh\n"
               "user:x:1000:1000:user:/home/user:/bin/sh\n"
               "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"hostname", "pinfold\n"},
    {"hosts", ETC_HOSTS},
    {"host.conf", "multi on\n"},
    /* Only files: with "dns" a look-up would wait for a name server that cannot be reached. */
    {"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\n"
                      "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
    /* For resolvers that do not read nsswitch.conf: no server, and no patience. */
    {"resolv.conf", "# No name server: this place has no network.\noptions timeout:1 attempts:1\n"},
    {"timezone", "UTC\n"},
    /* Well-formed, because D-Bus insists, and the same in every jail: "pinfoldpinfoldpi". */
    {"machine-id", "70696e666f6c6470696e666f6c647069\n"},
    /* The host's may export tokens and proxies. PATH stays what the request made it. */
    {"profile", "export PATH=\"${PATH:-/usr/local/bin:/usr/bin:/bin}\"\n"},
    {"bash.bashrc", "[ -z \"$PS1\" ] || PS1='\\w\\$ '\n"},
};

static const struct etc_text etc_links[] = {
    {"localtime", "/usr/share/zoneinfo/UTC"}, /* the JVM reads the zone's name out of the link */
    {"mtab", "/proc/self/mounts"},
};

/* What is copied from the host. `path` is below /etc, its last component a pattern. Within a
 * directory, regular files must match `only` (patterns, separated by blanks; NULL = all), and
 * nothing may match `skip`. */
struct etc_copy {
    const char *path;
    const char *only;
    const char *skip;
    const char *why;
};

static const struct etc_copy etc_copies[] = {
    {"ld.so.cache", NULL, NULL, "where the loader finds libraries outside its default directories"},
    {"ld.so.conf", NULL, NULL, "for ldconfig"},
    {"ld.so.conf.d", NULL, NULL, "for ldconfig"},
    {"alternatives", NULL, "*.gz", "java, awk, cc and more are links through it; no manual pages"},
    {"ssl/openssl.cnf", NULL, NULL, "openssl req and others refuse to start without"},
    {"ssl/certs", "ca-certificates.crt cacerts", NULL,
     "public certificates; single files there are the host's own, which name it"},
    {"os-release", NULL, NULL, "installers ask it which system this is"},
    {"lsb-release", NULL, NULL, "likewise"},
    {"debian_version", NULL, NULL, "likewise"},
    {"dpkg/origins", NULL, NULL, "dpkg-buildflags and dpkg-vendor"},
    {"protocols", NULL, NULL, "getprotobyname()"},
    {"services", NULL, NULL, "getservbyname()"},
    {"rpc", NULL, NULL, "getrpcbyname()"},
    {"ethertypes", NULL, NULL, "getethertypebyname()"},
    {"mime.types", NULL, NULL, "Python's mimetypes and others"},
    {"magic", NULL, NULL, "file"},
    {"magic.mime", NULL, NULL, "file"},
    {"locale.alias", NULL, NULL, "setlocale() reads it through /usr/share/locale"},
    {"inputrc", NULL, NULL, "readline: keys in an interactive shell"},
    {"terminfo", NULL, NULL, "curses looks here first"},
    {"shells", NULL, NULL, "getusershell()"},
    {"fonts", NULL, NULL, "fontconfig: anything that draws text"},
    {"mke2fs.conf", NULL, NULL, "mke2fs on a file"},
    {"java-*-openjdk", NULL, "net.properties *password* *.access *acl*",
     "the JVM's directory in /usr links to it; neither proxies nor accounts"},
    {"python3*", NULL, NULL, "sitecustomize.py of /usr/lib/python3* is a link to it"},
    {"perl", NULL, NULL, "in @INC; Net::Config"},
    {"R", "ldpaths Makeconf Renviron javaconf repositories", NULL, "R's home is a link to it"},
    {"maven", "m2.conf simplelogger.properties", NULL, "mvn; never settings.xml, it has passwords"},
    {"xml", "catalog *.xml", NULL, "xmllint and xsltproc without a network"},
    {"fpc*.cfg", NULL, NULL, "the Pascal compiler's search path"},
    {"gnucobol", NULL, NULL, "the COBOL compiler's dialects"},
    {"groff", NULL, NULL, "macro packages read it"},
    {"vim", "vimrc vimrc.tiny", NULL, "/usr/share/vim links to it"},
};

struct etc_state {
    const struct etc_copy *row; /* being copied */
    size_t entries;
    size_t bytes;
};

static bool etc_matches(const char *patterns, const char *name) {
    char pattern[64];
    for (const char *p = patterns; *p != '\0';) {
        size_t len = strcspn(p, " ");
        if (len > 0 && len < sizeof pattern) {
            memcpy(pattern, p, len);
            pattern[len] = '\0';
            if (fnmatch(pattern, name, 0) == 0) {
                return true;
            }
        }
        p += len + strspn(p + len, " ");
    }
    return false;
}

static int etc_write(int dir, const char *name, mode_t mode, const char *text, struct err *err) {
    fd_cleanup int fd =
        openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) {
        return err_sys(err, "make etc/%s", name);
    }
    return fd_write_all(fd, text, strlen(text), err);
}

static int etc_copy_bytes(struct etc_state *s, int from, int to, const char *name,
                          struct err *err) {
    char block[32768];
    for (;;) {
        ssize_t n = read(from, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_sys(err, "read %s of the host's /etc/%s", name, s->row->path);
        }
        if (n == 0) {
            return 0;
        }
        s->bytes += (size_t)n;
        if (s->bytes > ETC_BYTES_MAX) {
            return err_set(err, ERR_LIMIT, 0, "the host's /etc/%s is too large to copy",
                           s->row->path);
        }
        if (fd_write_all(to, block, (size_t)n, err) != 0) {
            return -1;
        }
    }
}

/* Copies a regular file that everybody may read; anything else that answers to the name by the time
 * it is open is left out. */
static int etc_copy_file(struct etc_state *s, int src, int dst, const char *name, struct err *err) {
    struct stat st;
    fd_cleanup int from =
        openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0) {
        return errno == ENOENT || errno == ELOOP
                   ? 0
                   : err_sys(err, "open %s of the host's /etc/%s", name, s->row->path);
    }
    if (fstat(from, &st) != 0) {
        return err_sys(err, "examine %s of the host's /etc/%s", name, s->row->path);
    }
    if (!S_ISREG(st.st_mode) || (st.st_mode & S_IROTH) == 0) {
        return 0;
    }
    mode_t mode = st.st_mode & S_IXOTH ? 0755 : 0644;
    fd_cleanup int to =
        openat(dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    return to < 0 ? err_sys(err, "make %s of etc/%s", name, s->row->path)
                  : etc_copy_bytes(s, from, to, name, err);
}

static int etc_copy_link(struct etc_state *s, int src, int dst, const char *name, struct err *err) {
    char text[PATH_MAX];
    ssize_t n = readlinkat(src, name, text, sizeof text);
    if (n < 0 || (size_t)n >= sizeof text) {
        return n < 0 && (errno == ENOENT || errno == EINVAL)
                   ? 0
                   : err_sys(err, "read link %s of the host's /etc/%s", name, s->row->path);
    }
    text[n] = '\0';
    return symlinkat(text, dst, name) == 0
               ? 0
               : err_sys(err, "make link %s of etc/%s", name, s->row->path);
}

/* A directory that everybody may list and enter, or nothing: -2. */
static int etc_open_dir(int src, const char *name, const char *path, struct err *err) {
    struct stat st;
    fd_cleanup int dir = openat(src, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) {
            return -2;
        }
        return err_sys(err, "open %s of the host's /etc/%s", name, path);
    }
    if (fstat(dir, &st) != 0) {
        return err_sys(err, "examine %s of the host's /etc/%s", name, path);
    }
    return (st.st_mode & (S_IROTH | S_IXOTH)) == (S_IROTH | S_IXOTH) ? fd_steal(&dir) : -2;
}

/* Opens directory `name` of `dst`, making it when it is not there. */
static int etc_make_dir(int dst, const char *name, struct err *err) {
    if (mkdirat(dst, name, 0755) != 0 && errno != EEXIST) {
        return err_sys(err, "make directory %s of etc", name);
    }
    int dir = openat(dst, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? err_sys(err, "open directory %s of etc", name) : dir;
}

static int etc_copy_entry(struct etc_state *s, int src, int dst, const char *name, unsigned depth,
                          struct err *err);

/* Copies the entries of `src` whose names match `pattern` into `dst`. Reads through a descriptor of
 * its own. */
static int etc_copy_entries(struct etc_state *s, int src, int dst, const char *pattern,
                            unsigned depth, struct err *err) {
    int copy = openat(src, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (dir == NULL) {
        (void)err_sys(err, "list the host's /etc/%s", s->row->path);
        fd_close(&copy);
        return -1;
    }
    int rc = 0;
    while (rc == 0) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (e == NULL) {
            rc = errno == 0 ? 0 : err_sys(err, "list the host's /etc/%s", s->row->path);
            break;
        }
        bool wanted = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                      fnmatch(pattern, e->d_name, FNM_PERIOD) == 0;
        if (wanted) {
            rc = etc_copy_entry(s, src, dst, e->d_name, depth, err);
        }
    }
    (void)closedir(dir);
    return rc;
}

static int etc_copy_dir(struct etc_state *s, int src, int dst, const char *name, unsigned depth,
                        struct err *err) {
    if (depth >= ETC_DEPTH_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the host's /etc/%s is too deep to copy", s->row->path);
    }
    fd_cleanup int from = etc_open_dir(src, name, s->row->path, err);
    if (from < 0) {
        return from == -2 ? 0 : -1;
    }
    fd_cleanup int to = etc_make_dir(dst, name, err);
    return to < 0 ? -1 : etc_copy_entries(s, from, to, "*", depth + 1, err);
}

static int etc_copy_entry(struct etc_state *s, int src, int dst, const char *name, unsigned depth,
                          struct err *err) {
    struct stat st;
    if (s->row->skip != NULL && etc_matches(s->row->skip, name)) {
        return 0;
    }
    if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT
                   ? 0
                   : err_sys(err, "examine %s of the host's /etc/%s", name, s->row->path);
    }
    if (++s->entries > ETC_ENTRIES_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the host's /etc/%s has too many entries to copy",
                       s->row->path);
    }
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        if (depth > 0 && s->row->only != NULL && !etc_matches(s->row->only, name)) {
            return 0;
        }
        return etc_copy_file(s, src, dst, name, err);
    case S_IFLNK:
        return etc_copy_link(s, src, dst, name, err);
    case S_IFDIR:
        return etc_copy_dir(s, src, dst, name, depth, err);
    default:
        return 0; /* sockets, FIFOs and devices have no business in a configuration */
    }
}

/* One row: walks to the directory that holds its last component, then copies what matches that. */
static int etc_copy_row(struct etc_state *s, int src, int dst, struct err *err) {
    char parent[64];
    const char *slash = strchr(s->row->path, '/');
    if (slash == NULL) {
        return etc_copy_entries(s, src, dst, s->row->path, 0, err);
    }
    size_t len = (size_t)(slash - s->row->path);
    if (len >= sizeof parent) {
        return err_set(err, ERR_LIMIT, 0, "the path %s is too long", s->row->path);
    }
    memcpy(parent, s->row->path, len);
    parent[len] = '\0';
    fd_cleanup int from = etc_open_dir(src, parent, s->row->path, err);
    if (from < 0) {
        return from == -2 ? 0 : -1;
    }
    fd_cleanup int to = etc_make_dir(dst, parent, err);
    return to < 0 ? -1 : etc_copy_entries(s, from, to, slash + 1, 0, err);
}

int etc_build_hosts(int dirfd, struct err *err) {
    return etc_write(dirfd, "hosts", 0644, ETC_HOSTS, err);
}

int etc_build(int etc_dirfd, struct err *err) {
    struct etc_state s = {0};
    fd_cleanup int host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (host < 0) {
        return err_sys(err, "open the host's /etc");
    }
    for (size_t i = 0; i < sizeof etc_texts / sizeof etc_texts[0]; i++) {
        if (etc_write(etc_dirfd, etc_texts[i].name, 0644, etc_texts[i].text, err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof etc_links / sizeof etc_links[0]; i++) {
        if (symlinkat(etc_links[i].text, etc_dirfd, etc_links[i].name) != 0) {
            return err_sys(err, "make link etc/%s", etc_links[i].name);
        }
    }
    for (size_t i = 0; i < sizeof etc_copies / sizeof etc_copies[0]; i++) {
        s.row = &etc_copies[i];
        if (etc_copy_row(&s, host, etc_dirfd, err) != 0) {
            return -1;
        }
    }
    return 0;
}

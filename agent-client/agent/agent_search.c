/* Searching. The pattern is a model's: compiling or matching it may ask for all memory and for
 * ever, so that is done by a child that may have little of both. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "agent_text.h"
#include "clock.h"
#include "fd.h"

#define AGENT_SEARCH_FOUND 200u
#define AGENT_SEARCH_SHOW ((size_t)24 * 1024)
#define AGENT_SEARCH_FILE_MAX ((uint64_t)16 * 1024 * 1024)
#define AGENT_SEARCH_OUT_MAX ((size_t)1024 * 1024)
#define AGENT_SEARCH_PATTERN_MAX 2000u
#define AGENT_SEARCH_CPU_S 5u
#define AGENT_SEARCH_WALL_MS 20000u
#define AGENT_SEARCH_MEMORY ((rlim_t)1024 * 1024 * 1024)

/* Lines of one file. */
static size_t agent_search_file(const struct buf *text, const char *path, const regex_t *re,
                                size_t room, struct buf *out) {
    char *at = text->data;
    size_t found = 0, number = 0;
    if (at == NULL || memchr(at, '\0', text->len) != NULL)
        return 0;
    char *end = at + text->len;
    while (at < end && found < room) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop != NULL)
            *stop = '\0';
        number++;
        if (regexec(re, at, 0, NULL, 0) == 0) {
            (void)buf_printf(out, NULL, "%s:%zu: %.200s\n", path, number, at);
            found++;
        }
        if (stop == NULL)
            break;
        at = stop + 1;
    }
    return found;
}

static void agent_search_all(const struct agent *a, const char *below, const regex_t *re,
                             struct buf *out) {
    size_t found = 0, n = strlen(below);
    for (size_t i = 0; i < a->project.tree.count && found < AGENT_SEARCH_FOUND; i++) {
        const struct ws_entry *e = &a->project.tree.entries[i];
        struct buf text;
        struct stat st;
        if (e->type != WS_FILE || e->withheld || e->size > AGENT_SEARCH_FILE_MAX ||
            (n > 0 &&
             (strncmp(e->path, below, n) != 0 || (e->path[n] != '/' && e->path[n] != '\0'))))
            continue;
        if (agent_files_load(a, e->path, &text, &st, NULL) == 0)
            found += agent_search_file(&text, e->path, re, AGENT_SEARCH_FOUND - found, out);
        buf_done(&text);
    }
}

static void agent_search_limit(int what, rlim_t most) {
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    (void)setrlimit(what, &limit);
}

/* The child: its answer goes into the pipe. Its exit code: 0 = the lines, 1 = no good pattern. */
static int agent_search_child(const struct agent *a, const char *pattern, const char *below,
                              int to) {
    regex_t re;
    char why[120];
    struct buf out;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    agent_search_limit(RLIMIT_CORE, 0);
    agent_search_limit(RLIMIT_CPU, AGENT_SEARCH_CPU_S);
#ifndef __SANITIZE_ADDRESS__ /* its shadow is larger than any limit */
    agent_search_limit(RLIMIT_AS, AGENT_SEARCH_MEMORY);
#endif
    buf_init(&out, AGENT_SEARCH_OUT_MAX);
    int rc = regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE);
    if (rc != 0) {
        regerror(rc, &re, why, sizeof(why));
        (void)buf_printf(&out, NULL, "the pattern is no regular expression: %s", why);
    } else {
        agent_search_all(a, below, &re, &out);
    }
    if (out.len > 0 && fd_write_all(to, out.data, out.len, NULL) < 0)
        return 2;
    return rc != 0;
}

/* What the child writes, until it ends or takes too long. */
static void agent_search_gather(int from, pid_t child, struct buf *out) {
    uint64_t end = clock_mono_ms() + AGENT_SEARCH_WALL_MS;
    char block[65536];
    for (;;) {
        struct pollfd p = {.fd = from, .events = POLLIN};
        uint64_t now = clock_mono_ms();
        int ready = now < end ? poll(&p, 1, (int)(end - now)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t n = ready > 0 ? read(from, block, sizeof(block)) : -1;
        if (n < 0 && ready > 0 && errno == EINTR)
            continue;
        if (n < 0)
            (void)kill(child, SIGKILL);
        if (n <= 0 || buf_append(out, block, (size_t)n, NULL) < 0)
            return;
    }
}

/* -1: the child did not come to an end of its own. */
static int agent_search_apart(const struct agent *a, const char *pattern, const char *below,
                              struct buf *out) {
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(agent_search_child(a, pattern, below, ends[1]));
    }
    close(ends[1]);
    if (child > 0) {
        agent_search_gather(ends[0], child, out);
        close(ends[0]);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? WEXITSTATUS(status) : -1;
    }
    close(ends[0]);
    return -1;
}

bool agent_search(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *pattern = json_string_value(json_object_get(arguments, "pattern"));
    const char *given = json_string_value(json_object_get(arguments, "path"));
    char path[WS_TREE_PATH_MAX];
    struct err err;
    struct buf found;
    if (!agent_files_path(a, given != NULL ? given : "", path, out))
        return true;
    if (strlen(pattern) > AGENT_SEARCH_PATTERN_MAX) {
        (void)buf_printf(out, NULL, "the pattern is longer than %u bytes",
                         AGENT_SEARCH_PATTERN_MAX);
        return true;
    }
    if (project_look(&a->project, &err) < 0) {
        (void)buf_puts(out, err.text, NULL);
        return true;
    }
    buf_init(&found, AGENT_SEARCH_OUT_MAX);
    int rc = agent_search_apart(a, pattern, path, &found);
    if (rc < 0)
        (void)buf_puts(
            out, "the pattern takes too much time or memory; search for something simpler", NULL);
    else if (found.len == 0)
        (void)buf_puts(out, "no line matches", NULL);
    else
        (void)agent_text_bound(out, found.data, found.len, AGENT_SEARCH_SHOW,
                               "search for something narrower", NULL);
    buf_done(&found);
    return rc != 0;
}

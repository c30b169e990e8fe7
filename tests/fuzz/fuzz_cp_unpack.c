/* Any bytes as the archive that a sandbox's directory comes back as: nothing outside of the target
 * directory is touched, no link in it leads out, and nothing in it is a device or has set-id bits.
 */
#include <stdio.h>

#include "cp_job.h"
#include "fuzz_serve.h"

/* What was made: nothing leads out. */
static void fuzz_tree(int dir, unsigned depth) {
    DIR *d = fdopendir(dup(dir));
    fuzz_require(d != NULL && depth < 400);
    rewinddir(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        fuzz_require(fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
        fuzz_require(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode));
        fuzz_require(S_ISLNK(st.st_mode) || (st.st_mode & 07000) == 0);
        if (S_ISDIR(st.st_mode)) {
            int sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
            if (sub >= 0)
                fuzz_tree(sub, depth + 1);
            close(sub);
        }
    }
    closedir(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)], url[64], local[64], text[16] = "", head[160];
    struct fuzz_server *server = fuzz_server();
    struct err err = {0};
    struct cp_path remote;
    struct cp_job *job = calloc(1, sizeof(*job));
    char *answer = malloc(sizeof(head) + size);
    fuzz_require(job != NULL && answer != NULL);
    int top = fuzz_dir(path);
    fuzz_file(top, "outside", "secret", 6);
    fuzz_require(mkdirat(top, "in", 0700) == 0);
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     size);
    memcpy(answer, head, (size_t)n);
    memcpy(answer + n, data, size);
    fuzz_answer(server, answer, (size_t)n + size);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", server->port);
    snprintf(local, sizeof(local), "%s/in", path);
    fuzz_require(target_init(&job->target, url, "pf_x", &err) == 0);
    job->recursive = true;
    job->rest = rest_new(&job->target, NULL, &err);
    fuzz_require(job->rest != NULL && cp_path_parse("sb_1:/workspace", &remote, &err) == 0);
    if (cp_unpack(job, &remote, local, &err) < 0)
        fuzz_require(err.text[0] != '\0');
    int in = openat(top, "in", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    fuzz_require(in >= 0);
    fuzz_tree(in, 0);
    close(in);
    int fd = openat(top, "outside", O_RDONLY | O_NOFOLLOW);
    fuzz_require(fd >= 0 && read(fd, text, sizeof(text)) == 6 && memcmp(text, "secret", 6) == 0);
    close(fd);
    fuzz_answer(server, "", 0);
    rest_free(job->rest);
    target_done(&job->target);
    free(answer);
    free(job);
    fuzz_remove(top, path);
    return 0;
}

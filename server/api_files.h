/* What the handlers of files share: the start of an operation, and the answer when it fails. */
#pragma once

#include "api.h"
#include "file_path.h"
#include "fileop_run.h"
#include "json_out.h"

/* The sandbox that the request names, when its path is one: else answers, and returns NULL. `path`
 * is made of args->rest. */
struct sandbox *api_files_sandbox(struct server *s, struct http_req *req,
                                  const struct route_args *args, char path[FILE_PATH_SIZE]);
/* Starts it (`argv` ends with a NULL), or answers 409, 429 or 500 and returns NULL. */
struct fileop_run *api_files_start(struct http_req *req, struct sandbox *sb,
                                   const char *const *argv, bool upload,
                                   const struct fileop_run_ops *ops, void *arg);
/* Bytes that a file may have to be sent or packed whole: sparse ones claim any size. */
uint64_t api_files_max(const struct sandbox *sb);
/* Answers with the reason. */
void api_files_failed(struct http_req *req, const struct fileop_result *result);
void api_files_no_memory(struct http_req *req);
/* Is there room for one more archive? Else it was answered: 429. */
bool api_files_archive_room(struct server *s, struct http_req *req);
/* Octal digits of a query parameter, at most 07777, of which the permission bits count; absent:
 * *mode is untouched. -1: it was answered. */
int api_files_mode(struct http_req *req, const char *name, char mode[8]);

/* What the parts of the model client share. */
#pragma once

#include <curl/curl.h>

#include "model.h"

struct model {
    char url[MODEL_URL_MAX]; /* of the endpoint */
    char name[MODEL_NAME_MAX];
    char key[MODEL_KEY_MAX];
    char ca[MODEL_URL_MAX];
    enum model_protocol protocol; /* not MODEL_AUTO */
    bool local_only;
    bool old_limit; /* the server wants max_tokens, not max_completion_tokens */
    unsigned retries;
    uint64_t silence_ms, total_ms;
    uint64_t end_ms; /* of what is asked now, by the clock; 0 = none */
    int cancel_fd;
    void (*on_text)(void *arg, const char *text, size_t len);
    void (*on_retry)(void *arg, unsigned attempt, uint64_t wait_ms, const char *why);
    void *arg;
    CURLM *multi;
    CURL *easy;
};

/* An answer that is being put together. */
struct model_part { /* a call */
    char *id, *name;
    struct buf arguments;
    bool begun, whole;
    int index; /* the provider's */
};

struct model_answer {
    struct model *model;
    struct buf text;
    struct model_part parts[MODEL_CALLS_MAX];
    size_t part_count;
    json_t *opaque; /* blocks to be sent back, in order */
    struct model_usage usage;
    enum model_stop stop;
    bool stopped; /* the server said why it stopped */
    bool closed;  /* its last event came */
    char model_name[MODEL_NAME_MAX];
    char trouble[300];         /* an error object within the stream; "" = none */
    enum model_failure failed; /* what kind of trouble */
};

/* A protocol. */
struct model_wire {
    const char *path; /* behind the URL that the user gave */
    /* The body of the request; a new reference, NULL: memory is short. */
    json_t *(*body)(const struct model *m, const struct model_request *request);
    /* Headers beside Content-Type; appended to the list. */
    int (*headers)(const struct model *m, struct curl_slist **list);
    /* One event of the stream (`event` may be ""), or a whole answer that was not streamed. -1: it
     * is not what the protocol says. */
    int (*event)(struct model_answer *a, const char *event, const json_t *data, struct err *err);
    int (*whole)(struct model_answer *a, const json_t *answer, struct err *err);
};

extern const struct model_wire model_openai;
extern const struct model_wire model_anthropic;

/* model_answer.c */
void model_answer_init(struct model_answer *a, struct model *m);
void model_answer_done(struct model_answer *a);
int model_answer_text(struct model_answer *a, const char *text, size_t len, struct err *err);
/* The part for a call: found by index (and id, when both have one), else new. NULL: too many. */
struct model_part *model_answer_part(struct model_answer *a, int index, const char *id,
                                     struct err *err);
int model_part_name(struct model_part *p, const char *id, const char *name, struct err *err);
int model_part_arguments(struct model_part *p, const char *text, struct err *err);
/* Makes the reply of what has come: calls that are whole; text. */
int model_answer_finish(struct model_answer *a, struct model_reply *reply, struct err *err);

/* model_error.c: an error answer. Fills failure, context_tokens of the reply, and *err. `status` 0:
 * from within a stream. */
/* What the server says of the key is not repeated: `key` in its text becomes asterisks. */
void model_error_read(const char *body, size_t len, long status, const char *key,
                      struct model_reply *reply, struct err *err);
/* Says the error's text that the request has a parameter that this server does not know? */
bool model_error_names(const char *body, const char *parameter);
/* A number of an object that is not negative; 0 when it is not there. */
uint64_t model_error_u64(const json_t *object, const char *key);

/* model_http.c: one attempt. */
struct model_attempt {
    const struct model_wire *wire; /* set by the caller, as are body and answer */
    const char *sent;              /* the request's body; borrowed; NULL = a GET */
    size_t sent_len;
    struct model_answer *answer;
    long status;
    int64_t wait_ms;  /* Retry-After; -1 = not given */
    int should_retry; /* x-should-retry: 1, 0, -1 = not given */
    bool connected;   /* bytes of an answer came */
    struct buf body;  /* of an answer that is not a stream */
};
int model_http_set_up(struct model *m, struct err *err);
int model_http_post(struct model *m, struct model_attempt *attempt, struct model_reply *reply,
                    struct err *err);
/* Waits, or less when it is cancelled: false then. */
bool model_http_wait(struct model *m, uint64_t ms);

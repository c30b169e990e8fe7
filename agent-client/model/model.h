/* A language model behind HTTP: one question, one streamed answer.
 *
 * Two protocols: chat completions as OpenAI defined them (vLLM, llama.cpp, Ollama and most clouds
 * speak it) and Anthropic's messages. What is common to both is here; the differences stay in
 * model_openai.c and model_anthropic.c.
 *
 * The model's words are data. A call of a tool is handed out only when its arguments arrived whole
 * and are a JSON object; one that was cut off (the stream broke, the token limit came) is never
 * handed out. A request that failed half-way is asked again: what on_text has shown of it is void
 * then, which on_retry tells.
 *
 * Local only: with options.local_only no address but loopback is ever connected to, and no name is
 * looked up, whatever the URL, the environment's proxies, a redirect or DNS say. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define MODEL_URL_MAX 1024
#define MODEL_NAME_MAX 200
#define MODEL_KEY_MAX 1024
#define MODEL_HOST_MAX 64                            /* a numeric address with its port */
#define MODEL_ANSWER_MAX ((size_t)16 * 1024 * 1024)  /* text and calls of one answer */
#define MODEL_STREAM_MAX ((size_t)256 * 1024 * 1024) /* bytes of one HTTP answer */
#define MODEL_CALLS_MAX 128u

enum model_protocol { MODEL_AUTO, MODEL_OPENAI, MODEL_ANTHROPIC };

enum model_role { MODEL_SYSTEM, MODEL_USER, MODEL_ASSISTANT, MODEL_TOOL };

struct model_call {
    char *id, *name;
    char *arguments; /* text of a JSON object */
};

/* All texts are owned; model_message_done(). */
struct model_message {
    enum model_role role;
    char *text;               /* NULL = none */
    struct model_call *calls; /* MODEL_ASSISTANT */
    size_t call_count;
    char *call_id; /* MODEL_TOOL: the call that this answers */
    bool failed;   /* MODEL_TOOL: the call did not work */
    /* MODEL_ASSISTANT: what the provider wants to see again unchanged (signed thinking); counted
     * reference, NULL = nothing. */
    json_t *opaque;
};

struct model_tool {
    const char *name, *description;
    const json_t *parameters; /* JSON Schema of an object; borrowed */
};

/* Everything borrowed. */
struct model_request {
    const struct model_message *messages;
    size_t message_count;
    const struct model_tool *tools;
    size_t tool_count;
    uint32_t answer_tokens; /* at most; 0 = 4096 */
    uint64_t total_ms;      /* for all attempts together; 0 = as many as there are */
};

/* Tokens by kind; they do not overlap: what was read from a cache is not in `input`, whatever the
 * provider's own numbers do. */
struct model_usage {
    bool known; /* false: the server told nothing */
    uint64_t input, cache_read, cache_write, output;
    uint64_t reasoning; /* part of output */
};

enum model_stop {
    MODEL_STOP_END,     /* it has said what it wanted */
    MODEL_STOP_CALLS,   /* it wants tools; decided by the calls, not by what the server says */
    MODEL_STOP_LENGTH,  /* the token limit: text may be cut; calls that were cut are dropped */
    MODEL_STOP_REFUSED, /* a filter of the provider */
};

enum model_failure {
    MODEL_OK,
    MODEL_OVERFLOW,  /* the request is longer than the model's context: shorten it */
    MODEL_REJECTED,  /* 4xx: wrong key, unknown model, bad request; repeating is useless */
    MODEL_BUSY,      /* 429, 5xx, no connection: also after all retries */
    MODEL_BROKEN,    /* the answer is not what the protocol says */
    MODEL_CANCELLED, /* the cancel descriptor became readable */
    MODEL_FORBIDDEN, /* local_only and not local */
};

/* model_reply_done(). */
struct model_reply {
    struct model_message message; /* role MODEL_ASSISTANT */
    enum model_stop stop;
    struct model_usage usage;
    size_t dropped; /* calls that were cut off or whose arguments are no JSON object */
    char dropped_why[200];
    enum model_failure failure;
    uint64_t context_tokens;    /* MODEL_OVERFLOW: the limit that the server named; 0 = not */
    char host[MODEL_HOST_MAX];  /* address that was connected to */
    char model[MODEL_NAME_MAX]; /* as the server names it */
    unsigned attempts;
    uint64_t duration_ms;
};

struct model_options {
    const char *url; /* "http://127.0.0.1:8000/v1", "https://api.anthropic.com" */
    const char *name;
    const char *key;              /* NULL = none; never logged, never in an error */
    enum model_protocol protocol; /* MODEL_AUTO: Anthropic when the host's name says so */
    bool local_only;
    unsigned retries;    /* 0 = none */
    uint64_t silence_ms; /* without any byte; 0 = 120 s */
    uint64_t total_ms;   /* of one attempt; 0 = 10 min */
    int cancel_fd;       /* readable = stop now; -1 = none */
    const char *ca;      /* file of a certificate authority; NULL = the machine's */
    void (*on_text)(void *arg, const char *text, size_t len); /* as it arrives; may be NULL */
    /* A request will be repeated after `wait_ms`, because of `why`; may be NULL. */
    void (*on_retry)(void *arg, unsigned attempt, uint64_t wait_ms, const char *why);
    void *arg;
};

struct model;

/* Copies what it needs of the options. ERR_INVALID: the URL or the name is none; with local_only, a
 * host that is neither "localhost" nor a loopback address. */
struct model *model_new(const struct model_options *options, struct err *err);
/* "openai" or "anthropic": the protocol that is spoken. */
const char *model_provider(const struct model *m);
/* How many tokens its context holds, as its server tells; 0 = it does not. Asks the same address as
 * model_ask() and no other, for a few seconds at most. */
uint64_t model_limit(const struct model *m);
void model_free(struct model *m); /* wipes the key; NULL allowed */

/* Asks. 0: *reply is an answer. -1: *err is one sentence, reply->failure says which kind, and
 * reply->usage what was charged nevertheless. In both cases the caller owns *reply. */
int model_ask(struct model *m, const struct model_request *request, struct model_reply *reply,
              struct err *err);

void model_reply_done(struct model_reply *reply);       /* NULL and zeroed allowed */
void model_message_done(struct model_message *message); /* likewise */
/* A deep copy; -1: memory is short. */
int model_message_copy(const struct model_message *from, struct model_message *to);

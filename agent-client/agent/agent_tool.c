#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"

#define AGENT_TOOL_TODO_MAX ((size_t)4000)

static bool agent_tool_todo(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *items = json_string_value(json_object_get(arguments, "items"));
    struct buf copy;
    buf_init(&copy, AGENT_TOOL_TODO_MAX + 1);
    /* Cut, and then made whole: it goes into every request. */
    if (agent_text_clean(&copy, items, strnlen(items, AGENT_TOOL_TODO_MAX), NULL) < 0 ||
        copy.len == 0) {
        buf_done(&copy);
        return true;
    }
    free(a->todo);
    a->todo = buf_take(&copy);
    (void)buf_puts(out, "noted; it will be shown to you again after a compaction", NULL);
    return false;
}

#define AGENT_TOOL_ARGUMENTS_MAX 4u

struct agent_tool_argument {
    const char *name, *about;
    bool number, required;
};

struct agent_tool {
    const char *name, *description;
    struct agent_tool_argument arguments[AGENT_TOOL_ARGUMENTS_MAX];
    bool (*call)(struct agent *a, const json_t *arguments, struct buf *out);
};

static const struct agent_tool agent_tools[] = {
    {.name = "list",
     .description = "Lists the files below a directory of the workspace.",
     .arguments = {{.name = "path", .about = "directory; the whole workspace when absent"}},
     .call = agent_files_list},
    {.name = "read",
     .description = "Reads a file of the workspace, with line numbers, or a kept output (out:N).",
     .arguments = {{.name = "path", .about = "file, or out:N", .required = true},
                   {.name = "from", .about = "first line", .number = true},
                   {.name = "count", .about = "lines, at most 400", .number = true}},
     .call = agent_files_read},
    {.name = "search",
     .description = "Finds lines of the workspace's files that match.",
     .arguments = {{.name = "pattern",
                    .about = "POSIX extended regular expression",
                    .required = true},
                   {.name = "path", .about = "only below this directory"}},
     .call = agent_search},
    {.name = "edit",
     .description = "Replaces one piece of a file by another. `old` must be in the file exactly "
                    "once; copy it without line numbers.",
     .arguments = {{.name = "path", .about = "file", .required = true},
                   {.name = "old", .about = "what is there now", .required = true},
                   {.name = "new", .about = "what shall be there", .required = true}},
     .call = agent_files_edit},
    {.name = "write",
     .description = "Writes a whole file; directories are made.",
     .arguments = {{.name = "path", .about = "file", .required = true},
                   {.name = "content", .about = "all of it", .required = true}},
     .call = agent_files_write},
    {.name = "run",
     .description = "Runs a shell command on the workspace's files in a sandbox without a network. "
                    "What it changes comes back as far as the rules let it.",
     .arguments = {{.name = "command", .about = "one line of bash", .required = true}},
     .call = agent_run},
    {.name = "todo",
     .description = "Notes what is still to be done, for yourself.",
     .arguments = {{.name = "items", .about = "one item a line", .required = true}},
     .call = agent_tool_todo},
    {.name = "done",
     .description = "Says that the task is done. The verifier then runs; only when it passes is "
                    "the task over.",
     .arguments = {{.name = "summary", .about = "what was done", .required = true}},
     .call = agent_verify_done},
};

#define AGENT_TOOLS (sizeof(agent_tools) / sizeof(agent_tools[0]))

/* A JSON Schema of the arguments. */
static json_t *agent_tool_schema(const struct agent_tool *tool) {
    json_t *properties = json_object(), *required = json_array();
    for (size_t i = 0; i < AGENT_TOOL_ARGUMENTS_MAX && tool->arguments[i].name != NULL; i++) {
        const struct agent_tool_argument *one = &tool->arguments[i];
        json_object_set_new(properties, one->name,
                            json_pack("{s:s, s:s}", "type", one->number ? "integer" : "string",
                                      "description", one->about));
        if (one->required)
            json_array_append_new(required, json_string(one->name));
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required",
                     required, "additionalProperties", 0);
}

int agent_tool_make(struct model_tool tools[AGENT_TOOLS_MAX], size_t *count, struct err *err) {
    _Static_assert(AGENT_TOOLS <= AGENT_TOOLS_MAX, "room for all tools");
    for (size_t i = 0; i < AGENT_TOOLS; i++) {
        tools[i] = (struct model_tool){.name = agent_tools[i].name,
                                       .description = agent_tools[i].description,
                                       .parameters = agent_tool_schema(&agent_tools[i])};
        if (tools[i].parameters == NULL)
            return err_set(err, ERR_SYSTEM, 0, "out of memory");
        *count = i + 1;
    }
    return 0;
}

void agent_tool_unmake(struct model_tool *tools, size_t count) {
    for (size_t i = 0; i < count; i++)
        json_decref((json_t *)(uintptr_t)tools[i].parameters);
}

static const struct agent_tool_argument *agent_tool_argument(const struct agent_tool *tool,
                                                             const char *name) {
    for (size_t i = 0; i < AGENT_TOOL_ARGUMENTS_MAX && tool->arguments[i].name != NULL; i++)
        if (strcmp(tool->arguments[i].name, name) == 0)
            return &tool->arguments[i];
    return NULL;
}

/* Required ones are there, none is unknown, types fit. */
static bool agent_tool_fits(const struct agent_tool *tool, const json_t *arguments,
                            struct buf *out) {
    const char *key;
    json_t *value;
    for (size_t i = 0; i < AGENT_TOOL_ARGUMENTS_MAX && tool->arguments[i].name != NULL; i++) {
        const struct agent_tool_argument *one = &tool->arguments[i];
        if (one->required && json_object_get(arguments, one->name) == NULL) {
            (void)buf_printf(out, NULL, "the call lacks the argument %s", one->name);
            return false;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value) {
        const struct agent_tool_argument *one = agent_tool_argument(tool, key);
        if (one == NULL || !(one->number ? json_is_integer(value) && json_integer_value(value) > 0
                                         : json_is_string(value))) {
            (void)buf_printf(out, NULL, "the argument %.60s is not known, or not of the right type",
                             key);
            return false;
        }
    }
    return true;
}

bool agent_tool_call(struct agent *a, const struct model_call *call, struct buf *out) {
    const struct agent_tool *tool = NULL;
    const struct perm_verdict *v;
    for (size_t i = 0; i < AGENT_TOOLS; i++)
        if (strcmp(agent_tools[i].name, call->name) == 0)
            tool = &agent_tools[i];
    if (tool == NULL) {
        (void)buf_printf(out, NULL, "there is no tool %.60s", call->name);
        return true;
    }
    /* A rule may forbid a tool as a whole; nothing need allow it: each guards its own effects. */
    v = perm_judge_subject(&a->project.perm, RULE_TOOL, tool->name);
    if (v->rule != NULL && v->rule->verdict == RULE_DENY)
        return agent_say_denied(
            a, out, permission_exec_subject(&a->project.decide, RULE_TOOL, tool->name, &v), v);
    json_t *arguments = json_loads(call->arguments, JSON_REJECT_DUPLICATES, NULL);
    bool failed = !json_is_object(arguments) || !agent_tool_fits(tool, arguments, out) ||
                  tool->call(a, arguments, out);
    if (!json_is_object(arguments))
        (void)buf_puts(out, "the arguments are no JSON object", NULL);
    json_decref(arguments);
    return failed;
}

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"

#define AGENT_TOOL_RESULT_MAX ((size_t)64 * 1024)

static bool agent_tool_todo(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *items = json_string_value(json_object_get(arguments, "items"));
    char *copy = strndup(items, 4000);
    if (copy == NULL)
        return true;
    free(a->todo);
    a->todo = copy;
    (void)buf_puts(out, "noted; it will be shown to you again after a compaction", NULL);
    return false;
}

struct agent_tool {
    const char *name, *description, *schema;
    bool (*call)(struct agent *a, const json_t *arguments, struct buf *out);
};

#define AGENT_TOOL_STRING(text) "{\"type\":\"string\",\"description\":\"" text "\"}"
#define AGENT_TOOL_NUMBER(text) "{\"type\":\"integer\",\"minimum\":1,\"description\":\"" text "\"}"

static const struct agent_tool agent_tools[] = {
    {"list", "Lists the files below a directory of the workspace.",
     "{\"type\":\"object\",\"properties\":{\"path\":" AGENT_TOOL_STRING(
         "directory; the whole workspace when absent") "},\"additionalProperties\":false}",
     agent_files_list},
    {"read", "Reads a file of the workspace, with line numbers, or a kept output (out:N).",
     "{\"type\":\"object\",\"properties\":{\"path\":" AGENT_TOOL_STRING(
         "file, or out:N") ",\"from\":" AGENT_TOOL_NUMBER("first line") ",\"count\""
                                                                        ":" AGENT_TOOL_NUMBER("line"
                                                                                              "s, "
                                                                                              "at "
                                                                                              "most"
                                                                                              " 40"
                                                                                              "0") "},\"required\":[\"path\"],"
                                                                                                   "\"additionalProperties\":false}",
     agent_files_read},
    {"search", "Finds lines that match an extended regular expression in the workspace's files.",
     "{\"type\":\"object\",\"properties\":{\"pattern\":" AGENT_TOOL_STRING(
         "POSIX extended regular expression") ",\"path\":" AGENT_TOOL_STRING("only below this "
                                                                             "directory") "},"
                                                                                          "\"requir"
                                                                                          "ed\":["
                                                                                          "\"patter"
                                                                                          "n\"],"
                                                                                          "\"additi"
                                                                                          "onalProp"
                                                                                          "erties\""
                                                                                          ":false}",
     agent_files_search},
    {"edit",
     "Replaces one piece of a file by another. `old` must be in the file exactly once; copy it "
     "without line numbers.",
     "{\"type\":\"object\",\"properties\":{\"path\":" AGENT_TOOL_STRING("file") ",\"old\""
                                                                                ":" AGENT_TOOL_STRING("what is there now") ",\"new\":" AGENT_TOOL_STRING(
                                                                                    "what shall be "
                                                                                    "there") "},"
                                                                                             "\"req"
                                                                                             "uired"
                                                                                             "\":["
                                                                                             "\"pat"
                                                                                             "h\","
                                                                                             "\"old"
                                                                                             "\","
                                                                                             "\"new"
                                                                                             "\"],"
                                                                                             "\"add"
                                                                                             "ition"
                                                                                             "alPro"
                                                                                             "perti"
                                                                                             "es\":"
                                                                                             "false"
                                                                                             "}",
     agent_files_edit},
    {"write", "Writes a whole file; directories are made.",
     "{\"type\":\"object\",\"properties\":{\"path\":" AGENT_TOOL_STRING(
         "file") ",\"content\":" AGENT_TOOL_STRING("all of it") "},\"required\":[\"path\","
                                                                "\"content\"],"
                                                                "\"additionalProperties\":false}",
     agent_files_write},
    {"run",
     "Runs a shell command on the workspace's files in a sandbox without a network. What it "
     "changes "
     "comes back as far as the rules let it.",
     "{\"type\":\"object\",\"properties\":{\"command\":" AGENT_TOOL_STRING(
         "one line of bash") "},\"required\":[\"command\"],\"additionalProperties\":false}",
     agent_run},
    {"todo", "Notes what is still to be done, for yourself.",
     "{\"type\":\"object\",\"properties\":{\"items\":" AGENT_TOOL_STRING(
         "one item a line") "},\"required\":[\"items\"],\"additionalProperties\":false}",
     agent_tool_todo},
    {"done",
     "Says that the task is done. The verifier then runs; only when it passes is the task over.",
     "{\"type\":\"object\",\"properties\":{\"summary\":" AGENT_TOOL_STRING(
         "what was done, in a few sentences") "},\"required\":[\"summary\"],"
                                              "\"additionalProperties\":false}",
     agent_verify_done},
};

#define AGENT_TOOLS (sizeof(agent_tools) / sizeof(agent_tools[0]))

int agent_tool_make(struct model_tool tools[AGENT_TOOLS_MAX], size_t *count, struct err *err) {
    _Static_assert(AGENT_TOOLS <= AGENT_TOOLS_MAX, "room for all tools");
    for (size_t i = 0; i < AGENT_TOOLS; i++) {
        tools[i] = (struct model_tool){.name = agent_tools[i].name,
                                       .description = agent_tools[i].description,
                                       .parameters = json_loads(agent_tools[i].schema, 0, NULL)};
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

/* Arguments against the schema: required ones are there, none is unknown, types fit. */
static bool agent_tool_fits(const struct agent_tool *tool, const json_t *arguments,
                            struct buf *out) {
    json_t *schema = json_loads(tool->schema, 0, NULL), *value, *name;
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    size_t i;
    bool fits = true;
    json_array_foreach(json_object_get(schema, "required"), i, name) {
        if (fits && json_object_get(arguments, json_string_value(name)) == NULL) {
            (void)buf_printf(out, NULL, "the call lacks the argument %s", json_string_value(name));
            fits = false;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value) {
        const char *type =
            json_string_value(json_object_get(json_object_get(properties, key), "type"));
        bool good = type != NULL && (strcmp(type, "string") == 0
                                         ? json_is_string(value)
                                         : json_is_integer(value) && json_integer_value(value) > 0);
        if (fits && !good) {
            (void)buf_printf(out, NULL, "the argument %.60s is not known, or not of the right type",
                             key);
            fits = false;
        }
    }
    json_decref(schema);
    return fits;
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

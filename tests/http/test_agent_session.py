"""`pinfold agent`: what it takes from the model's server and from an earlier session."""

import json

import check
from model_server import ModelServer
from suite import test
from test_agent import outcome
from workspace import Workspace

DONE = {"calls": [("done", {"summary": "s"})]}


def started(events):
    first = next(one for one in events if one["type"] == "start")
    return first["context"], first["context_from"]


@test("the budget of tokens is the model's own limit, as its server tells it; --context overrides")
def _(pair):
    late = []

    def loaded():
        late.append(1)
        return {"models": [{"name": "scripted:latest", "context_length": 6000}]} if late[1:] else None

    models = "/v1/models"
    servers = [
        ({}, (), (32768, "default")),
        ({models: {"data": [{"id": "other", "max_model_len": 1}, {"id": "scripted",
                                                                  "max_model_len": 5000}]}},
         (), (5000, "model")),
        ({models: {"data": [{"id": "scripted"}]},
          "/props": {"default_generation_settings": {"n_ctx": 6144}}}, (), (6144, "model")),
        ({"/api/ps": {"models": [{"name": "scripted:latest", "context_length": 8192}]}}, (),
         (8192, "model")),
        ({"/api/show": {"parameters": "stop  x\\nnum_ctx    7000"}}, (), (7000, "model")),
        ({models + "/scripted": {"id": "scripted", "max_input_tokens": 90000}},
         ("--protocol", "anthropic"), (90000, "model")),
        ({models: {"data": [{"id": "scripted", "max_model_len": 5000}]}}, ("--context", "9000"),
         (9000, "option")),
        # Of a model that is not loaded yet nobody knows it; then it is asked once more.
        ({"/api/ps": loaded}, (), (32768, "default")),
        ({models: {"data": [{"id": "scripted", "max_model_len": -5}, 7, None]}}, (),
         (32768, "default")),
        ({models: [[]], "/props": "x", "/api/ps": {"models": 1}}, (), (32768, "default")),
    ]
    for told, more, wanted in servers:
        with Workspace(pair) as w, ModelServer([DONE], told) as model:
            done, events = w.agent(model, "t", "true", *more)
            outcome(done, events, 0, "verified")
            check.equal(started(events), wanted, "the limit of %s %s" % (told, more))
            check.equal(model.looked == [], wanted[1] == "option", "what was asked: %s" % model.looked)
    check.equal(len(late), 2, "how often it was asked again")
    with Workspace(pair) as w, \
            ModelServer([DONE], {models: {"data": [{"id": "scripted", "max_model_len": 900}]}}) as model:
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 8, "context")
        check.equal(model.requests, [], "requests to a model that holds too little")


@test("what the model is sent stays within the limit that its server told")
def _(pair):
    told = {"/v1/models": {"data": [{"id": "scripted", "max_model_len": 4096}]}}
    reads = [{"calls": [("read", {"path": "f%d" % i})]} for i in range(12)]
    with Workspace(pair) as w, ModelServer(reads + [DONE], told) as model:
        for i in range(12):
            w.write("f%d" % i, "word %d\n" % i * 700)
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 0, "verified")
        longest = max(len(json.dumps(one["body"]["messages"])) for one in model.requests)
        check.true(longest < 4096 * 4, "%d bytes for 4096 tokens" % longest)
        check.true(any(one["type"] == "compaction" for one in events), "it was never shortened")
        check.true(all(one["body"]["max_tokens"] == 1024 for one in model.requests), "the answers")


@test("a session that is taken up again has the options that it began with")
def _(pair):
    look = {"calls": [("list", {})]}
    change = {"calls": [("write", {"path": "keep", "content": "2"})]}
    with Workspace(pair) as w, ModelServer([look, change, DONE, DONE, DONE]) as model:
        w.write("a", "1")
        w.write("keep", "1")
        done, events = w.agent(model, "t", "true", "--tests-first", "--protect", "keep",
                               "--max-iters", "1", "--answer", "700")
        session = outcome(done, events, 1, "not_verified")["session"]
        done = w.pinfold("agent", "--resume", session, "--rules", w.rules, "--json",
                         "--max-iters", "9")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        last = outcome(done, events, 1, "not_verified")
        check.true("never failed" in last["why"], "--tests-first: %s" % last)
        check.equal(w.read("keep"), b"1", "what --protect names")
        for one in model.requests:
            check.equal((one["body"]["max_tokens"], one["body"]["model"]), (700, "scripted"),
                        "--answer and --model")
        # What was asked for then still holds the third time, but for what is said anew.
        done = w.pinfold("agent", "--resume", session, "--rules", w.rules, "--json", "--max-iters", "1")
        check.true("that is the limit" in done.stdout, "--max-iters: %s" % done.stdout[-300:])

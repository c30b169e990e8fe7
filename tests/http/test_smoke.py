"""The first things to look at: does it start, run something and say why that ended?"""

import check
from suite import test


@test("healthz and readyz answer 200 without a token")
def _(pair):
    check.equal(pair.probe("/healthz"), 200, "/healthz")
    check.equal(pair.probe("/readyz"), 200, "/readyz")


@test("true ends by exit with code 0")
def _(pair):
    answer = check.ok(pair.client.run(argv=["/bin/true"]))
    check.ended(answer, "exit", exit_code=0, signal=None)
    check.equal(answer["state"], "done", "state")
    check.equal(answer["failed_step"], None, "failed_step")
    check.equal(len(answer["steps"]), 1, "number of steps")
    check.equal(answer["steps"][0]["name"], "main", "name of the only step")
    check.matches(answer["id"], r"^run_[a-z0-9]{20,32}$", "id")


@test("false ends by exit with code 1 and the service succeeds")
def _(pair):
    answer = pair.client.run(argv=["false"])
    check.ended(answer, "exit", exit_code=1, signal=None)
    check.equal(answer["ok"], False, "ok")
    check.equal(answer["failed_step"], 0, "failed_step")


@test("a shell line gives its output")
def _(pair):
    answer = check.ok(pair.client.sh("echo hi | wc -c; echo err >&2"))
    check.equal(check.text(answer), "3\n", "stdout")
    check.equal(check.text(answer, stream="stderr"), "err\n", "stderr")
    step = answer["steps"][0]
    check.equal((step["stdout_bytes"], step["stdout_omitted"]), (2, 0), "bytes and omitted")


@test("a file goes in, one comes out")
def _(pair):
    answer = check.ok(
        pair.client.run(
            argv=["python3", "main.py"],
            collect=["out/**"],
            files=[
                {
                    "path": "main.py",
                    "content": "import os\nos.mkdir('out')\n"
                    "open('out/a.txt', 'w').write('abc')\nprint(1)\n",
                }
            ],
        )
    )
    check.equal(check.text(answer), "1\n", "stdout")
    check.equal(
        [(f["path"], f.get("content"), f.get("encoding"), f.get("size")) for f in answer["files"]],
        [("out/a.txt", "abc", "utf-8", 3)],
        "files",
    )


@test("the answer has the shape that API.md fixes")
def _(pair):
    answer = check.ok(pair.client.run(argv=["/bin/true"], limits={"mem_bytes": 67108864}))
    check.equal(answer["limits"]["mem_bytes"], {"value": 67108864, "from": "request"}, "mem_bytes")
    for name in (
        "wall_ms",
        "cpu_ms",
        "mem_bytes",
        "pids",
        "disk_bytes",
        "inodes",
        "output_bytes",
        "open_files",
        "cpus_milli",
    ):
        one = answer["limits"].get(name)
        check.true(
            one and isinstance(one["value"], int) and one["value"] > 0, "limits.%s is %r", name, one
        )
        check.member(one["from"], ("request", "policy", "default"), "limits.%s.from" % name)
    check.equal(answer["policy"]["name"], "default", "policy.name")
    check.matches(answer["policy"]["sha256"], r"^[0-9a-f]{64}$", "policy.sha256")
    check.equal(answer["network"], {"mode": "none"}, "network")
    for name in ("queue_ms", "setup_ms", "run_ms"):
        check.true(isinstance(answer["timing"][name], int), "timing.%s is no integer", name)
    usage = answer["steps"][0]["usage"]
    for name in (
        "wall_ms",
        "cpu_user_ms",
        "cpu_system_ms",
        "mem_peak_bytes",
        "pids_peak",
        "oom_kills",
        "stragglers_killed",
    ):
        check.true(isinstance(usage.get(name), int), "usage.%s is no integer", name)
    check.equal(pair.client.fetch(answer["id"]), answer, "GET of the same run")


@test("wait:false answers 202 with an id, and the result is there later")
def _(pair):
    run = pair.client.submit(argv=["echo", "later"])
    answer = check.ok(pair.client.wait_done(run))
    check.equal(check.text(answer), "later\n", "stdout")


@test("stream:true sends accepted, started, output, end and done, in this order")
def _(pair):
    with pair.client.stream(argv=["echo", "hi"]) as stream:
        check.holds(stream.type, "application/x-ndjson", "Content-Type")
        events = [event for _, event in stream]
    check.equal(
        [e["type"] for e in events], ["accepted", "started", "stdout", "end", "done"], "types"
    )
    check.equal([e["seq"] for e in events], [0, 1, 2, 3, 4], "seq")
    check.equal(events[2]["data"], "hi\n", "data")
    check.equal(events[-1]["ok"], True, "ok")

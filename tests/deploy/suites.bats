#!/usr/bin/env bats
# What tests/run runs: every HTTP test once, however they are divided; few at once, and what loads the
# machine never beside its like.

setup() {
    cd "$BATS_TEST_DIRNAME/../.."
}

# Runs what is on stdin with tests/run as the module `runner`.
with_runner() {
    /usr/bin/python3 -c '
import importlib.machinery, importlib.util, subprocess, sys, threading
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("runner", "tests/run")
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
loader.exec_module(runner)
exec(sys.stdin.read())'
}

@test "the suites of HTTP tests are all of these tests, each once" {
    run with_runner <<'END_OF_TEST'
titles = lambda *more: subprocess.run(
    ["/usr/bin/python3", "tests/http/run.py", "--list", *more], capture_output=True, text=True, check=True
).stdout.splitlines()
found = []
for suite in runner.discover():
    if suite.name.startswith("http") and "--part" in suite.command:
        found += titles(*suite.command[2:])
assert sorted(found) == sorted(titles()), set(found) ^ set(titles())
assert len(found) > 1000, len(found)
END_OF_TEST
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "one heavy suite runs at a time, beside others, and none is left" {
    run with_runner <<'END_OF_TEST'
kinds = [None, runner.HEAVY, runner.HEAVY, None, runner.WAITS, runner.HEAVY, None, runner.WAITS]
suites = [runner.Suite("%d" % i, [], 9, kind) for i, kind in enumerate(kinds)]
begun, now, seen, order = threading.Condition(), [], [], []

def played(suite):
    with begun:
        now.append(suite)
        order.append(suite.name)
        seen.append([one.kind for one in now])
        mine = len(order)
        begun.notify_all()
        # Until another one has begun beside it, or none is left that could.
        begun.wait_for(lambda: len(order) > mine or len(order) == len(suites), 5)
        now.remove(suite)

runner.run, runner.report = played, lambda *_: None
runner.side_by_side(suites)
assert sorted(order) == [one.name for one in suites], order
assert max(kinds.count(runner.HEAVY) for kinds in seen) == 1, seen
assert max(kinds.count(runner.WAITS) for kinds in seen) == 1, seen
most = max(len(kinds) for kinds in seen)
assert 1 < most <= runner.AT_ONCE + 1, seen
END_OF_TEST
    echo "$output"
    [ "$status" -eq 0 ]
}

"""Processors are shared between users, however many jails each of them has."""

import os
import statistics
import threading

import check
import harness
from client import nonce
from processors import about, idles, in_left_group, left_groups, weights
from suite import Skip, test

BURN = "while :; do :; done"


@test("the jails of one user weigh together what another's one weighs, and those that wait for something nothing", own=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        one, other, mark = pair.user_client("one"), pair.user_client("other"), {}
        for who in (one, other):
            mark[who] = nonce()

        def submit(who, text):
            return who.submit(sh="#%s\n%s" % (mark[who], text), limits={"wall_ms": 60000, "cpu_ms": 60000})

        def await_weights(who, *wanted):
            seen = []

            def right():
                seen[:] = weights(pair.runner_pid, mark[who])
                return about(seen, wanted)

            check.eventually(right, 15, lambda: "the weights are %s, should be %s" % (seen, wanted))

        runs = [submit(one, BURN) for _ in range(3)]
        await_weights(one, 1, 1, 1)
        single = submit(other, BURN)
        await_weights(one, .25, .25, .25)
        await_weights(other, 1)
        runs.append(submit(one, "sleep 50; true"))
        await_weights(one, .25, .25, .25, .25)
        one.delete("/v1/runs/" + runs[0])
        one.delete("/v1/runs/" + runs[1])
        await_weights(one, 1, 1)  # one that computes, one that sleeps
        # A sandbox counts while commands run in it.
        made = one.post("/v1/sandboxes", {}).json()["id"]
        began = one.post("/v1/sandboxes/%s/exec" % made, {
            "sh": "#%s\n%s" % (mark[one], BURN), "background": True, "limits": {"wall_ms": 60000, "cpu_ms": 60000}})
        check.equal(began.status, 202, "an execution")
        await_weights(one, .5, .5, .5)
        one.delete("/v1/sandboxes/" + made)
        await_weights(one, 1, 1)
        runs += [submit(one, BURN) for _ in range(2)]
        await_weights(one, .25, .25, .25, .25)
        other.delete("/v1/runs/" + single)
        await_weights(one, 1, 1, 1, 1)  # alone, all is as it was
        for run in runs:
            one.delete("/v1/runs/" + run)


@test("a user with one jail gets half of the processors that another's six want, too", own=True)
def _(_):
    with harness.Pair(slots=8, warm=8) as pair:
        hog, other = pair.user_client("hog"), pair.user_client("other")
        limits = {"wall_ms": 2500, "cpu_ms": 60000}
        many = [hog.submit(sh=BURN, limits=limits) for _ in range(6)]
        single = other.submit(sh=BURN, limits=limits)

        def used(who, run):
            usage = who.wait_done(run)["steps"][0]["usage"]
            return usage["cpu_user_ms"] + usage["cpu_system_ms"]

        mine, theirs = used(other, single), sum(used(hog, run) for run in many)
        # By jails it would be a seventh; one thread of his has no more than one processor.
        fair = min((mine + theirs) / 2, limits["wall_ms"])
        check.true(mine > 0.6 * fair, "he had %d ms beside %d ms" % (mine, theirs))


@test("who takes all processors gives way to who wants little, and shares them with who wants them, too", own=True,
      deadline=60)
def _(_):
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (5, 15):
        raise Skip("cpu.idle came with Linux 5.15")
    processors = os.cpu_count()
    with harness.Pair(slots=2 * processors + 2, warm=4) as pair:
        hog, other, mark = pair.user_client("hog"), pair.user_client("other"), nonce()

        def burns(who, text):
            return who.submit(sh="#%s\n%s" % (text, BURN), limits={"wall_ms": 60000, "cpu_ms": 60000})

        seen, over = [], threading.Event()

        def are(wanted):
            seen[:] = idles(pair.runner_pid, mark)
            return seen == [wanted] * processors

        def lives():
            while not over.is_set():
                check.ok(other.run(sh="true"))

        def policy(who):
            return check.ok(who.run(sh="cut -d' ' -f41 /proc/self/stat"))["steps"][0]["stdout"].strip()

        many, late = [burns(hog, mark) for _ in range(processors)], nonce()
        modest = threading.Thread(target=lives)
        modest.start()
        try:
            check.eventually(lambda: are(True), 15, lambda: "beside short runs: %s" % seen)
            check.equal(policy(hog), "5", "what he starts then is SCHED_IDLE")
            check.equal(policy(other), "0", "and what the other starts is not")
            # Between several idle groups whoever wakes may wait: he gets jails of one.
            while in_left_group(pair.runner_pid, late) != [True]:  # or the deadline
                if len(many) > processors:
                    hog.delete("/v1/runs/" + many.pop())
                many.append(burns(hog, late))
                check.eventually(lambda: in_left_group(pair.runner_pid, late), 15, "it runs")
            groups = left_groups(pair.runner_pid)
            check.equal([idle for idle, _ in groups.values()], [True], "is their group idle")
        finally:
            over.set()
            modest.join(60)
        equals = [burns(other, nonce()) for _ in range(processors)]
        check.eventually(lambda: are(False), 15, lambda: "beside who wants as much: %s" % seen)
        check.equal(policy(hog), "0", "what he starts then")
        check.eventually(lambda: list(left_groups(pair.runner_pid).values()) ==
                         [(False, weights(pair.runner_pid, late)[0])], 15,
                         "their group weighs what the one in it weighs")
        for who, runs in ((hog, many), (other, equals)):
            for run in runs:
                who.delete("/v1/runs/" + run)


@test("a user who floods the server with short runs leaves what is ready to another", own=True)
def _(_):
    with harness.Pair(slots=8, warm=16) as pair:
        pair.warm_up()
        flood, other, waits = pair.user_client("flood"), pair.user_client("other"), []
        check.ok(other.run(sh="true"))
        over = threading.Event()

        def floods():
            while not over.is_set():
                waits.append(check.ok(flood.run(sh="true"))["timing"]["setup_ms"])

        threads = [threading.Thread(target=floods) for _ in range(6)]
        for one in threads:
            one.start()
        try:
            check.eventually(lambda: len(waits) > 60, 30, "the flood has begun")
            del waits[:]
            mine = [check.ok(other.run(sh="true"))["timing"]["setup_ms"] for _ in range(60)]
        finally:
            over.set()
            for one in threads:
                one.join(60)
        theirs = statistics.median(waits)
        check.true(2 * statistics.median(mine) < theirs,
                   "a jail took the other %s ms, and the flood %s", statistics.median(mine), theirs)

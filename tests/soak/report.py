"""What a soak says in the end: a table, tests as TAP, a picture, and the samples."""

import collections
import json
import os

import book
import gauge
import harness
import picture

MIB = float(1 << 20)


def verdicts(entries):
    """{program: {cause}} of the exam, and its sentences."""
    found = collections.defaultdict(collections.Counter)
    for e in entries:
        if e["kind"] == "run" and e["day"] == "D4" and e["cause"] != "interrupted":
            found[e["name"]][e["cause"]] += 1
    return found


def fairness(entries, long, start):
    """Runs of equal users that were answered in the long life -> {user: n}."""
    counts = collections.Counter(
        e["user"] for e in entries if e["kind"] == "run" and e["day"] == "D3" and
        long[0] <= e["ended"] - start <= long[1])
    return counts


def alive(entries, kills):
    """Milliseconds of /healthz while nobody was killed, the same without the time in which the
    server was ready and no processor free, those of an exchange with a process that does nothing
    else, and how often there was no answer."""
    calm = [e for e in entries if e["kind"] == "health" and not any(
        begun - 1 <= e["at"] + e["ms"] / 1000 and e["at"] <= ended + 1
        for begun, ended, _ in kills)]
    return (*([e[key] for e in calm] for key in ("ms", "own_ms", "bare_ms")),
            sum(e["status"] != 200 for e in calm))


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def number(self):
        return self.passed + self.failed + self.skipped

    def skip(self, name, why):
        self.skipped += 1
        print("ok %d - soak: %s # SKIP %s" % (self.number(), name, why))

    def test(self, name, problems):
        """One line of TAP; `problems` are sentences."""
        good = not problems
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print("%sok %d - soak: %s" % ("" if good else "not ", self.number(), name))
        for one in problems[:20]:
            print("    " + one)
        if len(problems) > 20:
            print("    and %d more" % (len(problems) - 20))


def table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("# " + "  ".join(str(cell).ljust(w) if i == 0 else str(cell).rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
    print("#")


def grown(soak):
    """The table of what must be flat -> {who: (grown, allowed)} of memory."""
    table([("at rest", "warm", "middle", "after the long life", "at the end")] + [
        (key, *(point[key] for point in soak.quiet)) for key in gauge.COUNTED] + [
        ("memory of the %s, MiB" % who, *("%.2f" % (point[who] / MIB) for point in soak.quiet))
        for who in ("server", "runner")])
    under = {who: [s[who] for s in soak.samples if s[who]] for who in ("server", "runner")}
    table([("memory under load (Pss, MiB)", "p50", "most")] + [
        (who, "%.2f" % (gauge.percentile(values, 0.5) / MIB), "%.2f" % (max(values) / MIB))
        for who, values in under.items()])
    return {who: gauge.growth(soak.quiet[1], soak.quiet[2], who) for who in ("server", "runner")}


def load(soak, entries):
    runs = [e for e in entries if e["kind"] == "run"]
    rows = [("day", "program", "runs", "interrupted", "p50 s", "p99 s", "queue p50 ms")]
    for key in sorted({(e["day"], e["name"]) for e in runs}):
        mine = [e for e in runs if (e["day"], e["name"]) == key]
        took = [e["ended"] - e["begun"] for e in mine]
        rows.append(key + (len(mine), sum(e["cause"] == "interrupted" for e in mine),
                           "%.2f" % gauge.percentile(took, 0.5),
                           "%.2f" % gauge.percentile(took, 0.99),
                           "%d" % gauge.percentile([e["queue_ms"] or 0 for e in mine], 0.5)))
    turns = [e for e in entries if e["kind"] == "turn"]
    rows.append(("D7", "turns", len(turns), "-", *(
        "%.3f" % gauge.percentile([e["seconds"] for e in turns], p) for p in (0.5, 0.99)), "-"))
    rows.append(("D10", "attempts", sum(e["kind"] == "attempt" for e in entries), *"----"))
    table(rows)


def draw(soak, entries, path):
    start, seconds = soak.start, soak.now()
    kills = [(begun - start, what) for begun, _, what in soak.kills]
    one = picture.Picture("pinfold soak, %g minutes, %d clients" % (soak.minutes, soak.clients),
                          seconds, kills, soak.rests)

    def of(key, scale=1.0):
        return [(s["at"], s[key] / scale) for s in soak.samples]

    one.panel("memory", "MiB of Pss", {"server": of("server", MIB), "runner": of("runner", MIB)})
    one.panel("descriptors", "number", {who: of("descriptors of the " + who)
                                        for who in ("server", "runner")})
    one.panel("threads, processes", "number", {
        "threads of the server": of("threads of the server"),
        "processes of the runner": of("processes of the runner"),
        "processes in jails": of("processes in jails")})
    one.panel("cgroups, mounts, namespaces", "number", {
        k: of(k) for k in ("cgroup directories", "mounts of the host", "network namespaces",
                           "mount namespaces")})
    width = max(1.0, seconds / 120)
    runs = [e for e in entries if e["kind"] == "run"]
    one.panel("answers", "runs per second", {
        day: picture.rates([e["ended"] - start for e in runs if e["day"] == day], seconds, width)
        for day in ("D3", "D4", "D10")})
    health = [e for e in entries if e["kind"] == "health"]
    one.panel("/healthz", "ms, p99 of %.0f s" % width, {name: picture.buckets(
        [(e["at"] - start, e[key]) for e in health], seconds, width,
        lambda v: gauge.percentile(v, 0.99)) for name, key in (
            ("/healthz", "ms"), ("a bare exchange", "bare_ms"))})
    with open(path, "w", encoding="utf-8") as out:
        out.write(one.svg())


def tell(soak, after):
    entries = soak.entries()
    counts, wrong = book.account(entries, soak.users)
    out, place = Report(), harness.BUILD
    print("1..13")
    load(soak, entries)
    memory = grown(soak)
    table([("runs", "number")] + list(counts.items()) + [("kills", len(soak.kills))])
    draw(soak, entries, os.path.join(place, "soak.svg"))
    with open(os.path.join(place, "soak.json"), "w", encoding="utf-8") as file:
        json.dump({"samples": soak.samples, "kills": soak.kills, "rests": soak.rests,
                   "quiet": soak.quiet, "counts": counts, "start": soak.start}, file)
    out.test("the days ran and came to rest", soak.problems)
    out.test("every accepted run is done with its result or interrupted, none lost or doubled",
             wrong)
    out.test("nothing is interrupted without a kill", [
        "%s of %s" % (e["id"], e["user"]) for e in book.beyond(entries, soak.kills)])
    for who, m in memory.items():
        out.test("memory of the %s at rest does not grow" % who, [] if m[0] <= m[1] else [
            "it grew by %.2f MiB, allowed are %.2f" % (m[0] / MIB, m[1] / MIB)])
    out.test("nothing counted grows in a long life", gauge.more(soak.quiet[0], soak.quiet[1]) +
             gauge.more(soak.quiet[0], soak.quiet[2]))
    out.test("nothing counted grows over kills", gauge.more(soak.quiet[0], soak.quiet[3]))
    fair = fairness(entries, soak.long, soak.start)
    most, least = max(fair.values(), default=0), min(fair.values(), default=0)
    print("# fairness: equal users had between %d and %d answers" % (least, most))
    if sum(fair.values()) < 1000 and soak.minutes < 3:
        out.skip("equal users get equal shares", "too few runs in so short a time to tell")
    else:
        out.test("equal users get equal shares (max/min < 2)", [] if len(fair) == 10 and
                 most < 2 * least else ["%s" % dict(fair)])
    ms, own, bare, silent = alive(entries, soak.kills)
    print("# /healthz: p50 %.1f ms, p99 %.1f ms, most %.1f ms of %d; without the time in which the "
          "server waited for a processor: p99 %.1f ms; a bare exchange: p99 %.1f ms" % (
              gauge.percentile(ms, 0.5), gauge.percentile(ms, 0.99), max(ms, default=0), len(ms),
              gauge.percentile(own, 0.99), gauge.percentile(bare, 0.99)))
    allowed = 100 + gauge.percentile(bare, 0.999)
    out.test("/healthz answers within 100 ms (p99.9) beyond what the machine itself takes",
             ["%d times not at all" % silent] if silent or not ms else
             [] if gauge.percentile(own, 0.999) < allowed else [
                 "%.1f ms, allowed are %.1f" % (gauge.percentile(own, 0.999), allowed)])
    same = verdicts(entries)
    out.test("each program of the exam has one verdict, the true one", [
        "%s: %s" % (k, dict(v)) for k, v in same.items() if len(v) != 1] or
        ([] if len(same) > 5 else ["only %d programs ran" % len(same)]))
    print("# agent: an old sandbox takes %.2f times what a new one does" % soak.ratio)
    out.test("the agent's sandbox is as quick as a new one (+ 20 %)",
             [] if soak.ratio < 1.2 else ["%.2f times" % soak.ratio])
    found = after(soak)
    out.test("canaries are untouched, no secret is in a log, the audit log is sound",
             found["canaries"] + found["secrets"] + found["audit"])
    out.test("nothing is left", found["left"])
    print("# picture: %s" % os.path.join(place, "soak.svg"))
    print("%d passed, %d failed, %d skipped" % (out.passed, out.failed, out.skipped))
    return 1 if out.failed else 0

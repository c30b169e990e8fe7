"""Checks that say what they saw. Every one raises AssertionError with a sentence."""

import base64
import json
import re
import time


def fail(text, *more):
    raise AssertionError(text % more if more else text)


def true(value, text, *more):
    if not value:
        fail(text, *more)


def equal(seen, wanted, what):
    if seen != wanted:
        fail("%s is %s, should be %s" % (what, brief(seen), brief(wanted)))


def within(low, seen, high, what):
    if not isinstance(seen, (int, float)) or not low <= seen <= high:
        fail("%s is %s, should be between %s and %s" % (what, brief(seen), low, high))


def member(seen, wanted, what):
    if seen not in wanted:
        fail("%s is %s, should be one of %s" % (what, brief(seen), ", ".join(map(str, wanted))))


def holds(text, part, what):
    if part not in text:
        fail("%s lacks %s: %s" % (what, brief(part), brief(text)))


def lacks(text, part, what):
    if part in text:
        fail("%s holds %s: %s" % (what, brief(part), brief(text)))


def matches(text, pattern, what):
    if not re.search(pattern, text):
        fail("%s does not match %s: %s" % (what, pattern, brief(text)))


def brief(value, most=600):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most // 2] + " … " + text[-most // 2 :]


def step(answer, index=0):
    """The step object, shortened output, for messages."""
    seen = dict(answer["steps"][index])
    for key in ("stdout", "stderr"):
        if key in seen:
            seen[key] = brief(seen[key], 300)
    return json.dumps(seen, ensure_ascii=True)


def ended(answer, cause, index=0, **more):
    """The step ended by `cause`; further arguments are fields of its end object."""
    seen = answer["steps"][index].get("end") or {}
    if seen.get("cause") != cause:
        fail(
            "step %d ended by %s, should be %s: %s",
            index,
            seen.get("cause"),
            cause,
            step(answer, index),
        )
    for key, value in more.items():
        if seen.get(key) != value:
            fail("end.%s is %r, should be %r: %s", key, seen.get(key), value, step(answer, index))
    for key in ("exit_code", "signal"):
        if key not in seen:
            fail("the end object lacks %s: %s", key, json.dumps(seen))
    return seen


def ok(answer):
    """Every step ended with exit code 0."""
    if answer.get("ok") is not True:
        at = answer.get("failed_step")
        fail("the run is not ok: %s", step(answer, at if isinstance(at, int) else 0))
    return answer


def output(answer, index=0, stream="stdout"):
    """The bytes of a stream of a step."""
    seen = answer["steps"][index]
    text = seen[stream]
    if seen[stream + "_encoding"] == "base64":
        return base64.b64decode(text, validate=True)
    equal(seen[stream + "_encoding"], "utf-8", stream + "_encoding")
    return text.encode("utf-8", "surrogatepass")


def text(answer, index=0, stream="stdout"):
    return output(answer, index, stream).decode("utf-8", "replace")


def lines(answer, index=0):
    return text(answer, index).splitlines()


def cut(answer, cap, index=0, stream="stdout"):
    """Checks the rule for output over the cap and returns (head, tail): the first and the last half
    of the cap with one line between them that names the number of bytes left out."""
    seen = answer["steps"][index]
    data, omitted = output(answer, index, stream), seen[stream + "_omitted"]
    true(omitted > 0, "nothing of %s was left out: %s", stream, step(answer, index))
    pattern = rb"\n?\[[^\[\]\n]*\b%d\b[^\[\]\n]*\]\n" % omitted
    found = [m for m in re.finditer(pattern, data) if m.start() <= cap // 2 + 1]
    true(
        len(found) >= 1,
        "no line says that %d bytes were left out of %s: %s",
        omitted,
        stream,
        brief(data[cap // 2 - 40 : cap // 2 + 120]),
    )
    head, tail = data[: found[0].start()], data[found[0].end() :]
    equal(
        len(head) + len(tail) + omitted,
        seen[stream + "_bytes"],
        "head %d + tail %d + omitted %d" % (len(head), len(tail), omitted),
    )
    return head, tail


def error(answer, status, code=None, field=None):
    """An error answer: one status (or several), the JSON shape, one plain sentence."""
    wanted = status if isinstance(status, (tuple, list, set)) else (status,)
    if answer.status not in wanted:
        fail(
            "status is %s, should be %s: %s",
            answer.status,
            "/".join(map(str, wanted)),
            brief(answer.body),
        )
    body = answer.json()
    seen = body.get("error")
    true(isinstance(seen, dict), "no error object: %s", brief(answer.body))
    true(re.fullmatch(r"[a-z][a-z0-9_]*", seen.get("code", "")), "no slug as code: %r", seen)
    sentence = seen.get("message", "")
    true(sentence and "\n" not in sentence and len(sentence) < 600, "no plain sentence: %r", seen)
    if code is not None:
        equal(seen["code"], code, "error.code")
    if field is not None:
        equal(seen.get("field"), field, "error.field")
    return seen


def eventually(probe, seconds, what, pause=0.01):
    """Polls until probe() is true; its value is returned."""
    end = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            fail("not within %s s: %s", seconds, what() if callable(what) else what)
        time.sleep(pause)


class Stopwatch:
    def __init__(self):
        self.start = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.start

    def below(self, most, what):
        seen = self.seconds()
        if seen > most:
            fail("%s took %.2f s, should be at most %s s", what, seen, most)

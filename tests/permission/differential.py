#!/usr/bin/python3
"""The parser of the permission engine against bash itself.

Usage: tests/permission/differential.py PINFOLD [CASES [SEED]]

Commands are generated from a grammar, and others from those by changing some characters. Then:
  - what the parser calls fully parsed, `bash -n` must accept;
  - what bash runs must be among the parts that the parser found.
The programs have names that do not exist (c1, c2f, …), PATH is empty, and bash tells through its
command_not_found_handle, with the words expanded, what it would have run. It works in a directory that
is thrown away. Prints TAP; a failing case is printed so that it can be pasted.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

BASH = "/bin/bash"
HANDLE = ("command_not_found_handle() { printf '%s\\0' \"$@\" $'\\x1e' >>\"$SEEN\"; "
          "case $1 in *f) return 1;; esac; return 0; }\n")


class Grammar:
    def __init__(self, rng):
        self.rng = rng
        self.count = 0
        self.functions = []

    def pick(self, *choices):
        return self.rng.choice(choices)

    def name(self):
        self.count += 1
        plain = f"c{self.count}" + self.pick("", "", "f")
        return self.pick(plain, plain, plain, plain[0] + '""' + plain[1:], "\\" + plain,
                         "'" + plain + "'", "$'\\x63'" + plain[1:], plain[0] + "\\\n" + plain[1:])

    def word(self, depth):
        simple = ["a", "b-c", "'a b'", '"a b"', "\\;", "a\\ b", "'#'", "a#b", "$'x\\ty'", "''", '""',
                  "{p,q}", "x{1,2}y", "{}", "{a}", "a=b", "~", "*.none", "[z]", "$HOME", "${HOME}",
                  '"${x:-y z}"', "${x-y}", "${#x}", "${HOME##*/}", "$((1+2))", "$?", "\"it's\"", "-n",
                  "--k=v", "%s", "a:b", "é", "!", "}", "{", "[", "]", "then", "do", "$", "a\\\nb"]
        if depth <= 0 or self.rng.random() < 0.75:
            return self.rng.choice(simple)
        inner = self.lists(depth - 1)
        return self.pick(f"$({inner})", f'"$({inner})"', f"`{self.simple(0, ticks=True)}`",
                         f"<({inner})", f"${{x:-$({inner})}}", f"$({inner}\n)", f"$(( $({inner}) 1 ))")

    def redirection(self):
        return self.pick(">o1", ">>o1", "2>&1", "2>/dev/null", ">|o2", "<i", "3<i", ">&2", "&>o1", "<>o3",
                         "<<<w", '<<<"a b"', "2>&-", "{v}>o1")

    def here(self, line):
        end = self.pick("E", "'E'", "\\E", "E")
        dash = self.pick("", "", "-")
        tab = "\t" if dash else ""
        body = self.pick("text\n", "a 'b\n", "E2\n E\n", "", "\\$(x) '\n")
        if end == "E":
            body += self.pick("", "$(" + self.simple(0) + ")\n")
        return f"{line} <<{dash}{end}\n{body}{tab}E\n"

    def simple(self, depth, ticks=False):
        words = [self.name()] if not ticks else [f"c{self.rng.randrange(900, 999)}"]
        for _ in range(self.rng.randrange(3)):
            words.append(self.word(depth) if not ticks else self.pick("a", "'b c'", "-x"))
        if not ticks and self.rng.random() < 0.2:
            words.insert(self.rng.randrange(len(words) + 1), self.redirection())
        if not ticks and self.rng.random() < 0.1:
            words.insert(0, self.pick("A=1", "A=", "A='x y'", "A+=1"))
        return self.pick(" ", " ", "  ", "\t", " \\\n ").join(words)

    def command(self, depth):
        if depth <= 0 or self.rng.random() < 0.5:
            return self.simple(depth)
        a, b, c = (self.lists(depth - 1) for _ in range(3))
        sep = self.pick("; ", "\n", ";\n", " ;")
        compound = self.pick(
            f"( {a} )", f"({a})", f"{{ {a}{sep}}}", f"if {a}{sep}then {b}{sep}else {c}{sep}fi",
            f"if {a}{sep}then {b}{sep}elif {b}{sep}then {c}{sep}fi",
            f"while {self.name()}_f && break{sep}do {b}{sep}break{sep}done",
            f"until {a}{sep}do {b}{sep}break{sep}done", f"for i in 1 2{sep}do {b}{sep}done",
            f"for i in {self.word(0)} {self.word(0)}\ndo {b}{sep}done",
            f"for (( i=0; i<2; i++ )); do {a}{sep}done",
            f"case x in a) {a};; x|y) {b};; esac", f"case x in\n(x) {b}\n;;\n*) {c}\nesac",
            f"[[ -n x && ( a == b || ! -e y ) ]] && {self.simple(0)}", f"(( 1 + 1 )) && {self.simple(0)}",
            f"fn{self.count}() {{ {a}{sep}}}; fn{self.count}",
            f"function gn{self.count} {{ {a}{sep}}}\ngn{self.count}", f"! {self.simple(0)}",
            f"time {self.simple(0)}", f"eval '{self.simple(0, ticks=True).replace(chr(39), '')}'")
        if self.rng.random() < 0.15 and not compound.startswith(("fn", "function", "!", "time", "eval", "[[",
                                                                 "((")):
            compound += " " + self.redirection()
        return compound

    def lists(self, depth):
        out = self.command(depth)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            join = self.pick(" && ", " || ", "; ", " | ", "\n", "&&", ";", " & ", " |& ", " # x ; y\n",
                             " &&\n")
            # "!" and "time" cannot stand behind a pipe.
            out += join + (self.simple(depth) if join in (" | ", " |& ") else self.command(depth))
        return out

    def whole(self):
        text = self.lists(2)
        if self.rng.random() < 0.25:
            text = self.here(self.simple(0)) + text
        return text


def changed(rng, text):
    """The text with a few characters that mean something put in, taken out or exchanged."""
    out = list(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        what = rng.random()
        if what < 0.5:
            out.insert(at, rng.choice("'\"\\$`(){}[];&|<>\n #=!~*?"))
        elif what < 0.8 and at < len(out):
            del out[at]
        elif at < len(out):
            out[at] = rng.choice("'\"\\$`(){};&|<>\n #")
    return "".join(out)


def judge(pinfold, rules, cases, where):
    done = subprocess.run([pinfold, "permission", "test", "--rules", rules, "--null", "-"],
                          input="".join(case + "\0" for case in cases).encode(), cwd=where,
                          stdout=subprocess.PIPE, check=True, timeout=120)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(verdicts) == len(cases), (len(verdicts), len(cases))
    return verdicts


def parsed(verdict):
    """Not refused as a whole: a part that is opaque has a reason that the parser gave."""
    return not any(part["opaque"] and not part["why"].endswith("is not known before it runs")
                   for part in verdict["parts"])


def limits():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def run_bash(arguments, where, seconds):
    """(exit status or None, stderr)"""
    environment = {"PATH": os.path.join(where, "empty"), "HOME": where, "SEEN": os.path.join(where, "seen"),
                   "BASH_ENV": os.path.join(where, "handle"), "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen([BASH, "--norc", "--noprofile", *arguments], cwd=os.path.join(where, "in"),
                               env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, preexec_fn=limits)
    try:
        _, errors = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        errors, status = b"", None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return status, errors.decode("utf-8", "replace")


def seen(where):
    path = os.path.join(where, "seen")
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    return [" ".join(word.decode("utf-8", "replace") for word in call[:-1].split(b"\0"))
            for call in data.split(b"\x1e\0") if call]


def pattern(text):
    """What a part may be once it is expanded: an expansion may be nothing, and then its blank goes."""
    out = ""
    for piece in re.split("( ?…| ?\\*| ?~|\\?|⏎)", text):
        if piece == "⏎":
            out += "\n"
        elif piece == "?":
            out += ".*"
        elif piece.endswith(("…", "*", "~")) and len(piece) <= 2:
            out += "(?: ?.*)?"
        else:
            out += re.escape(piece)
    return out


def missing(calls, verdict):
    whole = [re.compile(pattern(part["command"]), re.S) for part in verdict["parts"]]
    return [call for call in calls if not any(p.fullmatch(call) for p in whole)]


def main():
    pinfold = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 150
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 5)
    where = tempfile.mkdtemp(prefix="pinfold-differential.")
    try:
        for name in ("empty", "in"):
            os.mkdir(os.path.join(where, name))
        for name, text in (("handle", HANDLE), ("rules", "allow exec none\n"), ("in/i", "x\n")):
            with open(os.path.join(where, name), "w", encoding="utf-8") as file:
                file.write(text)
        return compare(pinfold, rng, count, where)
    finally:
        shutil.rmtree(where)


def compare(pinfold, rng, count, where):
    good = [Grammar(rng).whole() for _ in range(count)]
    cases = good + [changed(rng, rng.choice(good)) for _ in range(count)]
    verdicts = judge(pinfold, os.path.join(where, "rules"), cases, where)
    understood = refused = ran = 0
    wrong, lost = [], []
    for number, (case, verdict) in enumerate(zip(cases, verdicts)):
        if not parsed(verdict):
            continue
        understood += number < count
        status, errors = run_bash(["-n", "-c", case], where, 10)
        if status != 0 or "here-document" in errors:
            wrong.append((case, errors))
            continue
        if number >= count:
            refused += 1
        run_bash(["-c", case], where, 10)
        calls = seen(where)
        ran += len(calls)
        gone = missing(calls, verdict)
        if gone:
            lost.append((case, gone))
    report(1, understood * 5 >= count * 4, f"of {count} commands that are right {understood} are understood")
    report(2, not wrong, f"bash accepts what is understood ({refused} of the changed ones are)", wrong)
    report(3, not lost and ran > count, f"the {ran} commands that bash ran were all seen", lost)
    print("1..3")
    return 0 if understood * 5 >= count * 4 and not wrong and not lost and ran > count else 1


def report(number, ok, name, cases=()):
    print(f"{'ok' if ok else 'not ok'} {number} - {name}")
    for case, what in cases[:5]:
        print(f"# {case!r}: {what!r}")


if __name__ == "__main__":
    sys.exit(main())

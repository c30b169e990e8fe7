"""What is large is worked off by threads or in pieces: the server's one loop is never held."""

import base64
import os

import check
import harness
from box import MIB, Box, status
from client import nonce
from rounds import Rounds
from suite import test

# Milliseconds of processor time. What is asked for here took ten to fifty of them at once.
MOST = 6.0
LONG = {"wall_ms": 60000, "output_bytes": 8 * MIB}


class Held:
    """A pair, and how long its loop is held by what is asked of it."""

    def __enter__(self):
        self.pair = harness.Pair(slots=4, warm=2)
        self.rounds = Rounds(self.pair)
        self.pair.start()
        self.client = self.pair.client
        check.ok(self.client.run(argv=["true"]))
        return self

    def __exit__(self, *_):
        self.pair.discard()

    def ask(self, what, ask):
        self.rounds.start()
        answer = ask()
        longest = self.rounds.longest()
        print("# %s: %.1f ms" % (what, longest))
        check.true(longest < MOST, "%s: a round of the loop took %.1f ms", what, longest)
        return answer


@test("files and stdin of megabytes do not hold the loop on their way into a jail", own=True, deadline=60)
def _(_):
    with Held() as held:
        data = base64.b64encode(os.urandom(12 * MIB)).decode()
        one = {"path": "f", "content": data, "encoding": "base64"}
        got = held.ask("files", lambda: held.client.run(sh="wc -c <f", files=[one], limits=LONG))
        check.equal(check.ok(got)["steps"][0]["stdout"], "%d\n" % (12 * MIB), "the file")
        got = held.ask("stdin", lambda: held.client.run(argv=["wc", "-c"], stdin=data, limits=LONG))
        check.equal(check.ok(got)["steps"][0]["stdout"], "%d\n" % len(data), "the stdin")
        with Box.make(held.client) as box:
            body = {"argv": ["wc", "-c"], "stdin": data, "limits": LONG}
            got = held.ask("stdin of an execution",
                           lambda: status(held.client.post(box.path + "/exec", body), 200).json())
            check.equal(got["stdout"], "%d\n" % len(data), "the stdin")

"""A function in a process of its own: what measures, or makes load, must not wait for the
interpreter that the threads of the tests hold."""

import json
import os
import select
import traceback

from check import fail


class Apart:
    """Runs function(over) from now on; over(seconds) waits at most so long and says whether the end
    is wished. What it returns (JSON) is what end() returns."""

    def __init__(self, function):
        mine, self.stop = os.pipe()
        self.result, out = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(mine)
            os.close(out)
            return
        try:
            os.close(self.stop)
            os.close(self.result)
            try:
                said = [function(lambda seconds: bool(select.select([mine], [], [], seconds)[0])), None]
            except BaseException:
                said = [None, traceback.format_exc()]
            with open(out, "w") as file:
                json.dump(said, file)
        finally:
            os._exit(0)

    def over(self):
        """Has it returned?"""
        return bool(select.select([self.result], [], [], 0)[0])

    def end(self):
        try:
            os.write(self.stop, b"x")
        except BrokenPipeError:
            pass  # it is over already
        os.close(self.stop)
        with open(self.result) as file:
            text = file.read()
        os.waitpid(self.pid, 0)
        result, problem = json.loads(text or '[null, "it ended without a word"]')
        if problem:
            fail("the process apart: %s", problem)
        return result

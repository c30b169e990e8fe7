"""Containers that somebody else at the engine lays hands on."""

import check
from test_docker import docker, ours, pair, until


def busy():
    """The container in which a command sleeps."""
    for one in ours(pair()):
        status, text = pair().engine.ask("GET", "/v1.41/containers/%s/top" % one["Id"])
        if status == 200 and b"sleep" in text:
            return one
    return None


def laid_hands_on(method, what):
    """A run whose container this happens to -> its end, when nothing of it is left."""
    client = pair().client
    run = client.submit(backend="docker", argv=["sleep", "60"], limits={"wall_ms": 1500})
    one = until("the command runs", 10, busy)
    status, text = pair().engine.ask(method, "/v1.41/containers/%s%s" % (one["Id"], what))
    check.equal(status, 204, "%s: %s" % (what, text))
    end = client.wait_done(run, 10)["steps"][0]["end"]
    until("the container is gone", 5, lambda: not pair().engine.knows(one["Id"]))
    return end


@docker("a container that somebody renames keeps its limits, and is removed")
def _(_):
    check.equal(laid_hands_on("POST", "/rename?name=somebodys")["cause"], "wall_time", "cause")


@docker("a container that somebody kills or removes ends its run at once, as nobody's fault")
def _(_):
    for method, what in (("POST", "/kill"), ("DELETE", "?force=1")):
        end = laid_hands_on(method, what)
        check.equal(end["cause"], "internal", "cause")
        check.equal(end["evidence"]["stage"], "process 1", "stage")

"""Which image it was: digests in answers and receipts, asked for by the caller, pinned by policies."""

import hashlib
import json
import os
import shutil
import subprocess

import check
import clean
import harness
import test_image
from suite import test


def variant(pair, word):
    """The archive of a small image with a marker of its own."""

    def make(tar):
        test_image.put_base(tar)
        test_image.put(tar, "marker", word)

    return test_image.archive(pair, make, word.decode() + ".tar")


def put_image(pair, name, path):
    done = test_image.imported(pair, name, path)
    check.equal(done.returncode, 0, "import: %s" % done.stderr.decode())
    return "sha256:" + hashlib.sha256(clean.read(path)).hexdigest()


def remove_image(pair, name):
    shutil.rmtree(os.path.join(pair.state, "images", name))


@test("answers, sandboxes and receipts say which image it was; another is refused", own=True,
      deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        first, second = variant(pair, b"first"), variant(pair, b"second")
        digest = put_image(pair, "one", first)
        run = pair.client.run
        answer = check.ok(run(image="one", argv=["cat", "/marker"], image_digest=digest))
        check.equal((check.text(answer), answer["image_digest"]), ("first", digest), "the run")
        again = pair.client.get("/v1/runs/" + answer["id"]).json()
        check.equal(again["image_digest"], digest, "digest of the kept run")
        body = answer["receipt"]["body"]
        check.equal(body["image"], {"name": "one", "sha256": digest[7:]}, "receipt")
        check.true("image_digest" not in check.ok(run(argv=["true"])), "host has a digest")
        # Another of that name: whoever asked for the first is told.
        box = pair.client.post("/v1/sandboxes", {"image": "one"}).json()
        check.equal(box["image_digest"], digest, "sandbox")
        remove_image(pair, "one")
        other = put_image(pair, "one", second)
        check.true(other != digest, "the digests are equal")
        refused = pair.client.post("/v1/runs", {"image": "one", "argv": ["true"],
                                                "image_digest": digest})
        check.equal((refused.status, refused.json()["error"]["code"],
                     refused.json()["error"]["field"]), (409, "image_digest", "/image_digest"),
                    "another digest")
        refused = pair.client.post("/v1/sandboxes", {"image": "one", "image_digest": digest})
        check.equal(refused.status, 409, "a sandbox with another digest")
        answer = check.ok(run(image="one", argv=["cat", "/marker"]))
        check.equal((check.text(answer), answer["image_digest"]), ("second", other), "the new one")
        # The client's way to say it.
        for asked, code in ((other, 0), (digest, 125)):
            done = subprocess.run(
                [harness.program("pinfold"), "run", "--image", "one@" + asked, "--", "cat",
                 "/marker"], capture_output=True, timeout=20, stdin=subprocess.DEVNULL,
                env=dict(os.environ, PINFOLD_URL="http://127.0.0.1:%d" % pair.port,
                         PINFOLD_TOKEN=pair.token))
            check.equal(done.returncode, code, "pinfold run: %s" % done.stderr.decode())
        check.holds(done.stderr.decode(), "not the one that was asked for", "stderr")
        # A fork of the old sandbox would be one of another image.
        made = pair.client.post("/v1/sandboxes/%s/fork" % box["id"], {"count": 1})
        check.true(made.status >= 400, "a fork onto another image: %s", made.status)
        for wrong in ("", digest[7:], digest + "0", digest.upper(), 7, None):
            refused = pair.client.post("/v1/runs", {"image": "one", "argv": ["true"],
                                                    "image_digest": wrong})
            check.equal(refused.status, 400, "image_digest %r" % (wrong,))
        refused = pair.client.post("/v1/runs", {"argv": ["true"], "image_digest": digest})
        check.equal(refused.status, 400, "a digest of host")


def policy_with(pair, images):
    where = os.path.join(pair.work, "policies")
    shutil.copytree(harness.POLICIES, where)
    for name, allow in images.items():
        with open(os.path.join(where, "default.json")) as file:
            one = json.load(file)
        one["name"] = name
        one["images"] = {"allow": allow, "why": "test"}
        with open(os.path.join(where, name + ".json"), "w") as file:
            json.dump(one, file)
        os.chmod(os.path.join(where, name + ".json"), 0o644)
    pair.policies = where


@test("a policy's list of images is kept to, by name and by digest", own=True, deadline=40)
def _(_):
    pair = harness.Pair(slots=4, warm=1)
    pair.init()
    first, second = variant(pair, b"first"), variant(pair, b"second")
    digest = put_image(pair, "one", first)
    policy_with(pair, {"named": ["one"], "pinned": ["host", "one@" + digest],
                       "else": ["one@sha256:" + "0" * 64]})
    with pair:
        run = pair.client.run
        check.ok(run(policy="named", image="one", argv=["true"]))
        check.ok(run(policy="pinned", image="one", argv=["true"]))
        check.ok(run(policy="pinned", argv=["true"]))
        listed = pair.client.get("/v1/policies/pinned").json()["images"]
        check.equal(listed["allow"], ["host", "one@" + digest], "the policy as it is shown")
        check.true("images" not in pair.client.get("/v1/policies/default").json(), "default")

        def refused(policy, **more):
            for route, body in (("/v1/runs", {"argv": ["true"]}), ("/v1/sandboxes", {})):
                answer = pair.client.post(route, dict(body, policy=policy, **more))
                check.equal((answer.status, answer.json()["error"]["code"],
                             answer.json()["error"]["field"]), (403, "policy_image", "/image"),
                            "%s with policy %s" % (route, policy))

        refused("named")
        refused("else", image="one")
        remove_image(pair, "one")
        put_image(pair, "one", second)
        refused("pinned", image="one")
        check.equal(check.text(check.ok(run(policy="named", image="one", argv=["cat", "/marker"]))),
                    "second", "stdout")
        missing = pair.client.post("/v1/runs", {"policy": "named", "image": "two", "argv": ["x"]})
        check.equal(missing.json()["error"]["code"], "unknown_image", "code")

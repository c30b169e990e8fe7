"""One image on both back ends: imported once, from an OCI layout with a layer that takes away, the
same files and the same digest in a native jail and in a container."""

import json
import os
import subprocess
import sys

import check
import clean
import differs
import engine
import harness
from suite import Skip, test

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import layouts

LOOK = (
    "cd /; cat marker added; ls gone below/gone 2>&1; stat -c '%a %n' marker closed bin/busybox; "
    "stat -c '%h' one two; readlink link; id -u; pwd; echo x > /marker 2>/dev/null || echo closed; "
    "echo w > /workspace/w && cat /workspace/w"
)


def layers(word):
    base = [
        layouts.directory("bin"),
        layouts.member("bin/busybox", data=clean.read("/bin/busybox"), mode=0o4755),
        layouts.directory("below"),
        layouts.member("below/gone", data=b"low"),
        layouts.member("gone", data=b"low"),
        layouts.member("marker", data=b"first"),
        layouts.member("one", data=b"linked"),
        layouts.hardlink("two", "one"),
        layouts.symlink("link", "marker"),
        layouts.member("closed", data=b"x", mode=0o600),
    ]
    names = subprocess.run(["/bin/busybox", "--list"], capture_output=True, check=True).stdout
    base += [
        layouts.symlink("bin/" + name, "busybox")
        for name in names.decode().split()
        if name != "busybox"
    ]
    return [
        base,
        [
            layouts.gone("gone"),
            layouts.directory("below"),
            layouts.opaque("below"),
            layouts.member("marker", data=word),
            layouts.member("added", data=b"-added\n"),
        ],
    ]


def put_image(pair, name, word):
    path = os.path.join(pair.work, "layout-" + word.decode())
    if not os.path.exists(path):
        layouts.simple(path, layers(word))
    done = subprocess.run(
        [harness.program("pinfold-server"), "image", "import", name, path, "--state", pair.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    check.equal(done.returncode, 0, "import: %s" % done.stderr.decode())
    with open(os.path.join(path, "index.json")) as file:
        return json.load(file)["manifests"][0]["digest"]


@test("the README has the table of what differs in containers", own=True)
def _(_):
    with open(os.path.join(harness.repo(), "README.md")) as file:
        check.holds(file.read(), differs.table(), "README.md")


@test("an imported image is the same in a jail and in a container", own=True, deadline=120)
def _(_):
    if harness.why_no_docker():
        raise Skip(harness.why_no_docker())
    pair = engine.DockerPair(native=True, slots=2, warm=1)
    pair.init()
    digest = put_image(pair, "both", b"second")
    with open(os.path.join(harness.POLICIES, "default.json")) as file:
        policy = json.load(file)
    pair.policies = os.path.join(pair.work, "both-policies")
    os.mkdir(pair.policies, 0o755)
    policy["backends"] = {"allow": ["native", "docker"], "why": "test"}
    policies = {"default": None, "pinned": ["both@" + digest], "named": ["both"]}
    for name, allow in policies.items():
        policy["name"] = name
        policy.pop("images", None)
        if allow:
            policy["images"] = {"allow": allow, "why": "test"}
        with open(os.path.join(pair.policies, name + ".json"), "w") as file:
            json.dump(policy, file)
    with pair:
        texts = {}
        for backend in ("native", "docker"):
            answer = check.ok(
                pair.client.run(image="both", backend=backend, policy="pinned", sh=LOOK)
            )
            check.equal(answer["backend"], backend, "back end")
            check.equal(answer["image_digest"], digest, "digest of " + backend)
            check.equal(
                answer["receipt"]["body"]["image"],
                {"name": "both", "sha256": digest[7:]},
                "receipt of " + backend,
            )
            texts[backend] = check.text(answer)
        check.holds(texts["native"], "second-added\n", "stdout")
        check.holds(texts["native"], "755 bin/busybox\n2\n2\nmarker\n1000\n/\n", "stdout")
        check.holds(texts["native"], "closed\nw\n", "stdout")
        check.equal(texts["docker"], texts["native"], "what a container sees")
        # Another image under that name: both notice.
        done = subprocess.run(
            [harness.program("pinfold-server"), "image", "remove", "both", "--state", pair.state],
            capture_output=True,
            timeout=30,
        )
        check.equal(done.returncode, 0, "remove")
        other = put_image(pair, "both", b"third")
        for backend in ("native", "docker"):
            refused = pair.client.post(
                "/v1/runs",
                {"image": "both", "backend": backend, "policy": "pinned", "argv": ["true"]},
            )
            check.equal(refused.status, 403, "status of " + backend)
            answer = check.ok(
                pair.client.run(
                    image="both", backend=backend, policy="named", argv=["cat", "/marker"]
                )
            )
            check.equal(
                (check.text(answer), answer["image_digest"]), ("third", other), "of " + backend
            )

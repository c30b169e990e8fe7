#!/usr/bin/python3
"""A registry on loopback for tests: images of layouts.py, with tokens, broken connections, lies.

Usage: registry.py DIR [FLAG…]

Serves the layouts below DIR (DIR/NAME is the repository NAME, each tag the one of its index) and
writes its port into DIR/port and a line per request into DIR/log. Flags:
    token     a token is asked for;  password: one is given only to alice:secret
    basic     alice:secret is asked for
    cut       every second body of a blob breaks off in the middle
    whole     ranges are not honoured
    lie       one byte of the largest blob is another
    longer    blobs go on after their end
    endless   manifests never end
    slow      nothing comes (the connection stays open)
    redirect  blobs come from another path;  away: from a host that is not this machine's
    stranger  blobs come from another host, which asks for alice's password on an account of its own
    far-token the token is to be had from plain HTTP elsewhere
    errors    the first two requests of each path are answered with 503
"""

import base64
import http.server
import json
import os
import re
import socketserver
import sys
import time
import urllib.parse

DIR, FLAGS = sys.argv[1], set(sys.argv[2:])
SEEN = {}


def blob_path(repo, digest):
    return os.path.join(DIR, repo, "blobs", "sha256", digest)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, status, more=""):
        with open(os.path.join(DIR, "log"), "a", encoding="utf-8") as out:
            out.write("%s %s %d %s\n" % (self.command, self.path, status, more))

    def reply(self, status, body=b"", **headers):
        self.note(status, self.headers.get("Range", ""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        said = self.headers.get("Authorization", "")
        if "token" in FLAGS and said != "Bearer sesame":
            host = "registry.invalid" if "far-token" in FLAGS else self.headers["Host"]
            self.reply(401, b"{}", WWW_Authenticate='Bearer realm="http://%s/token",service="here",'
                       'scope="repository:x:pull,push"' % host)
            return False
        if "basic" in FLAGS and said != "Basic " + base64.b64encode(b"alice:secret").decode():
            self.reply(401, b"{}", WWW_Authenticate='Basic realm="here"')
            return False
        return True

    def token(self, query):
        said = self.headers.get("Authorization", "")
        if "password" in FLAGS and said != "Basic " + base64.b64encode(b"alice:secret").decode():
            return self.reply(401, b"{}")
        if query.get("scope") != ["repository:x:pull,push"] or query.get("service") != ["here"]:
            return self.reply(400, b"{}")
        return self.reply(200, json.dumps({"token": "sesame"}).encode())

    def manifest(self, repo, name):
        if "endless" in FLAGS:
            self.note(200)
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" " * 65536)
            except OSError:
                self.close_connection = True
            return None
        if name.startswith("sha256:"):
            return self.blob(repo, name[7:])
        with open(os.path.join(DIR, repo, "index.json"), "rb") as file:
            index = json.load(file)
        for one in index["manifests"]:
            ref = one.get("annotations", {}).get("org.opencontainers.image.ref.name", "latest")
            if ref.split(":")[-1] == name:
                with open(blob_path(repo, one["digest"][7:]), "rb") as file:
                    return self.reply(200, file.read(), Content_Type=one["mediaType"])
        return self.reply(404, b'{"errors":[]}')

    def largest(self, repo):
        where = os.path.join(DIR, repo, "blobs", "sha256")
        return max(os.listdir(where), key=lambda n: os.path.getsize(os.path.join(where, n)))

    def blob(self, repo, digest):
        try:
            with open(blob_path(repo, digest), "rb") as file:
                data = file.read()
        except OSError:
            return self.reply(404, b"{}")
        if "lie" in FLAGS and digest == self.largest(repo):
            data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        if "longer" in FLAGS:
            data += b"x" * 100000
        start, status, more = 0, 200, {}
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and "whole" not in FLAGS:
            start, status = int(asked[1]), 206
            if start >= len(data):
                return self.reply(416)
            more = {"Content_Range": "bytes %d-%d/%d" % (start, len(data) - 1, len(data))}
        data = data[start:]
        count = SEEN[self.path] = SEEN.get(self.path, 0) + 1
        if "cut" in FLAGS and count % 2 and len(data) > 1000:
            self.note(status, "cut " + self.headers.get("Range", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for key, value in more.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data[:len(data) // 2])
            self.close_connection = True
            return None
        return self.reply(status, data, **more)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        if url.path == "/token":
            return self.token(urllib.parse.parse_qs(url.query))
        if url.path.startswith("/thief/"):
            if "Authorization" in self.headers:
                self.note(0, "thief-told " + self.headers["Authorization"])
            return self.reply(401, b"{}", WWW_Authenticate='Bearer realm="http://%s/thief-token",'
                              'service="here",scope="repository:x:pull,push"' % self.headers["Host"])
        if url.path == "/thief-token":
            self.note(0, "told " + self.headers.get("Authorization", "nothing"))
            return self.reply(200, b'{"token": "sesame"}')
        if "slow" in FLAGS:
            self.note(0)
            time.sleep(600)
        match = re.fullmatch(r"(/other)?/v2/(.+)/(manifests|blobs)/([^/]+)", url.path)
        if not match:
            return self.reply(404)
        count = SEEN["#" + self.path] = SEEN.get("#" + self.path, 0) + 1
        if "errors" in FLAGS and count <= 2:
            return self.reply(503)
        if match[1]:
            # Another place: whoever comes with the token has told it to a stranger.
            return self.blob(match[2], match[4][7:])
        if not self.allowed():
            return None
        if match[3] == "manifests":
            return self.manifest(match[2], match[4])
        if "stranger" in FLAGS:
            port = self.headers["Host"].split(":")[1]
            return self.reply(307, Location="http://localhost:%s/thief%s" % (port, self.path))
        if "away" in FLAGS:
            return self.reply(307, Location="http://registry.invalid" + self.path)
        if "redirect" in FLAGS:
            return self.reply(307, Location="/other" + self.path)
        return self.blob(match[2], match[4][7:])


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def main():
    server = Server(("127.0.0.1", 0), Handler)
    with open(os.path.join(DIR, "port.new"), "w", encoding="utf-8") as out:
        out.write(str(server.server_address[1]))
    os.rename(os.path.join(DIR, "port.new"), os.path.join(DIR, "port"))
    server.serve_forever()


main()

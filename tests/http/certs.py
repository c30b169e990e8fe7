"""Certificates for tests, made by the openssl command: an authority of our own and what it signs."""

import atexit
import os
import shutil
import ssl
import subprocess
import tempfile

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*arguments):
    done = subprocess.run(
        ["openssl"] + list(arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )
    if done.returncode != 0:
        raise AssertionError("openssl %s: %s" % (arguments[0], done.stderr.decode()))
    return done.stdout.decode()


class Certificates:
    """An authority (self.ca) and, at self.certificate and self.key, what it signed last."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="pinfold-certs-")
        os.chmod(self.dir, 0o755)
        atexit.register(shutil.rmtree, self.dir, True)
        self.ca, self.ca_key = self.path("ca.crt"), self.path("ca.key")
        self.certificate, self.key = self.path("server.crt"), self.path("server.key")
        openssl(
            "req", "-x509", *CURVE, "-keyout", self.ca_key, "-out", self.ca, "-days", "2",
            "-subj", "/CN=Pinfold tests",
        )  # fmt: skip
        self.issue()

    def path(self, name):
        return os.path.join(self.dir, name)

    def issue(self, names="IP:127.0.0.1,DNS:localhost", start=None, end=None):
        """Signs a new certificate with a new key; both files are replaced. `start` and `end` are
        dates such as 20200101000000Z."""
        key, request, made = self.path("new.key"), self.path("new.csr"), self.path("new.crt")
        openssl("req", *CURVE, "-keyout", key, "-out", request, "-subj", "/CN=server")
        with open(self.path("ext"), "w") as out:
            out.write("subjectAltName=%s\n" % names)
        if start is None:
            openssl(
                "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key,
                "-CAcreateserial", "-days", "2", "-extfile", self.path("ext"), "-out", made,
            )  # fmt: skip
        else:
            self.sign_dated(request, made, start, end)
        for path in (key, made):
            os.chmod(path, 0o644)
        os.rename(key, self.key)
        os.rename(made, self.certificate)
        return self.serial()

    def sign_dated(self, request, made, start, end):
        with open(self.path("ca.cnf"), "w") as out:
            out.write(
                "[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nnew_certs_dir=%s\nserial=%s\n"
                "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
                % (self.path("index"), self.dir, self.path("serial"))
            )
        open(self.path("index"), "w").close()
        with open(self.path("serial"), "w") as out:
            out.write("77\n")
        openssl(
            "ca", "-batch", "-notext", "-config", self.path("ca.cnf"), "-in", request,
            "-cert", self.ca, "-keyfile", self.ca_key, "-startdate", start, "-enddate", end,
            "-extfile", self.path("ext"), "-out", made,
        )  # fmt: skip

    def serial(self):
        """The serial number of the certificate at self.certificate, as Python's ssl says it."""
        return openssl("x509", "-in", self.certificate, "-noout", "-serial").split("=")[1].strip()

    def read_key(self):
        with open(self.key, "rb") as file:
            return file.read()

    def arguments(self):
        return ["--tls-certificate", self.certificate, "--tls-key", self.key]

    def context(self):
        return ssl.create_default_context(cafile=self.ca)

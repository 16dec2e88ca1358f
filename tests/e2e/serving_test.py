"""Keys from a file, TLS, limits and reloads, on the running program."""

import os
import signal
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import fixtures
import harness
from harness import Case, Server, run_artery, wait_until
from wire import Connection, Stream, request_bytes

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"prompt": "x", "max_tokens": 2}


def bearer(key):
    return [("Authorization", f"Bearer {key}")]


class InFolder(Case):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="artery-serving-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return path


class KeyFile(InFolder):
    ALICE = '[[key]]\nname = "alice"\nkey = "alice-secret"\nmax_concurrent = 1\n'
    BOB = '[[key]]\nname = "bob"\nkey = "bob-secret"\ntenant = "bobs"\n'

    def test_keys_limits_and_reload(self):
        keys = self.write("keys.toml", self.ALICE + self.BOB)
        with Server(fixtures.m2(), "--api-keys", keys) as server:
            self.assert_refused(server.post(TEXT, BODY), 401, code="invalid_api_key")
            for key in ("alice-secret", "bob-secret"):
                self.assertEqual(server.post(TEXT, BODY, bearer(key)).status, 200)
            self.one_at_once(server)
            self.no_shared_prefix(server)
            metrics = server.get("/metrics", bearer("bob-secret")).body.decode()
            self.assertIn('artery:key_requests_total{engine="0",key_name="alice"', metrics)
            self.reload(server, keys)
            for text in ("alice-secret", "bob-secret", "carol-secret"):
                self.assertNotIn(text, "\n".join(server.lines))
                self.assertNotIn(text, metrics)

    def one_at_once(self, server):
        long = {"prompt": "x", "max_tokens": 20000, "ignore_eos": True}
        with Stream(server.port, TEXT, long, bearer("alice-secret")) as stream:
            next(iter(stream))
            refused = server.post(TEXT, BODY, bearer("alice-secret"))
            self.assert_refused(refused, 429, code="rate_limit_exceeded")
            self.assertGreater(int(refused.headers["retry-after"]), 0)
            self.assertEqual(server.post(TEXT, BODY, bearer("bob-secret")).status, 200)
        free = lambda: server.post(TEXT, BODY, bearer("alice-secret")).status == 200
        self.assertTrue(wait_until(free, 10, every=0.1))

    def no_shared_prefix(self, server):
        body = {"prompt": " story" * 200, "max_tokens": 1}
        cached = []
        for key in ("alice-secret", "bob-secret", "bob-secret"):
            usage = server.post(TEXT, body, bearer(key)).json["usage"]
            cached.append(usage["prompt_cache_hit_tokens"])
        self.assertEqual(cached[:2], [0, 0])
        self.assertGreater(cached[2], 150)

    def reload(self, server, keys):
        keys.write_text(self.BOB + '[[key]]\nname = "carol"\nkey = "carol-secret"\n')
        server.process.send_signal(signal.SIGHUP)
        ask = lambda key: server.post(TEXT, BODY, bearer(key)).status
        self.assertTrue(wait_until(lambda: ask("carol-secret") == 200, 10, every=0.1))
        self.assertEqual(ask("alice-secret"), 401)
        keys.write_text("[[key]]\nname = 5\n")
        server.process.send_signal(signal.SIGHUP)
        told = lambda: [one for one in server.lines if "the old API keys stay in use" in one]
        self.assertTrue(wait_until(told, 10))
        self.assertIn(str(keys), told()[0])
        self.assertEqual(ask("carol-secret"), 200)

    def test_bad_file(self):
        keys = self.write("keys.toml", "[[key]]\nname = \"a\"\n")
        began = time.monotonic()
        code, _, error = run_artery("serve", fixtures.m1(), "--port", "0", "--api-keys", keys)
        self.assertEqual(code, 3, error)
        self.assertIn(str(keys), error)
        self.assertIn("key_sha256", error)
        self.assertLess(time.monotonic() - began, 10)


def make_certificate(folder, name="localhost", stem="cert"):
    cert, key = folder / f"{stem}.pem", folder / f"{stem}.key"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
            + ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"]
            + ["-keyout", key, "-out", cert],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        raise unittest.SkipTest("no openssl program to make a certificate with") from None
    return cert, key


class Tls(InFolder):
    def setUp(self):
        super().setUp()
        self.cert, self.key = make_certificate(self.folder)
        self.flags = ("--ssl-certfile", self.cert, "--ssl-keyfile", self.key)
        self.context = ssl.create_default_context(cafile=self.cert)

    def test_clients(self):
        with Server(fixtures.m1(), *self.flags, tls=self.context) as server:
            self.assertIn("listening on https://", server.log)
            with Connection(server.port, tls=self.context) as connection:
                self.assertIn(connection.socket.version(), ("TLSv1.3", "TLSv1.2"))
                for _ in range(3):
                    connection.request("POST", TEXT, BODY)
                    self.assertEqual(connection.response().status, 200)
            whole, streamed = server.both(
                TEXT, {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 20}
            )
            self.assert_same_answer(whole, streamed)
            self.with_curl(server)
            self.old_versions(server)
            self.plain_client(server)
            self.assertEqual(server.get("/health").status, 200)

    def with_curl(self, server):
        if not shutil.which("curl"):
            return
        base = ["curl", "-sS", "--cacert", self.cert, "--max-time", "60"]
        url = f"https://127.0.0.1:{server.port}"
        done = subprocess.run([*base, url + "/v1/models"], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b'"object":"list"', done.stdout)
        body = '{"prompt":"x","max_tokens":5,"stream":true}'
        post = ["-H", "Content-Type: application/json", "-d", body, url + TEXT]
        done = subprocess.run([*base, "-N", *post], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith(b"data: [DONE]\n\n"))
        plain = ["curl", "-sS", "--max-time", "60", f"http://127.0.0.1:{server.port}/live"]
        done = subprocess.run(plain, capture_output=True)
        self.assertIn(b"https://", done.stdout)

    def old_versions(self, server):
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        try:
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
        except ValueError:
            return
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            Connection(server.port, 20, old)

    def plain_client(self, server):
        with Connection(server.port) as connection:
            connection.request("GET", "/live")
            response = connection.response()
            self.assertEqual(response.status, 400)
            self.assertIn("https://", response.error["message"])
            self.assertTrue(connection.ended())
        with Connection(server.port) as connection:
            connection.send(b"\x16\x03\x01\x00\x05hello, this is no handshake")
            connection.socket.settimeout(20)
            while True:
                try:
                    if not connection.socket.recv(1000):  # an alert may come first
                        break
                except ConnectionError:
                    break

    def test_tls_client_on_a_plain_port(self):
        with Server(fixtures.m1()) as server:
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                Connection(server.port, 20, self.context)
            self.assertEqual(server.get("/live").status, 200)

    def test_reload(self):
        with Server(fixtures.m1(), *self.flags, tls=self.context) as server:
            with Stream(
                server.port, TEXT, {"prompt": "x", "max_tokens": 300}, tls=self.context
            ) as stream:
                next(iter(stream))
                make_certificate(self.folder)  # the same files, a new certificate
                server.process.send_signal(signal.SIGHUP)
                told = lambda: [one for one in server.lines if "certificate reloaded" in one]
                self.assertTrue(wait_until(told, 10))
                for _ in stream:  # the old connection goes on
                    pass
            with self.assertRaises(ssl.SSLError):
                Connection(server.port, 20, self.context)
            server.tls = ssl.create_default_context(cafile=self.cert)
            self.assertEqual(server.get("/live").status, 200)
            self.cert.write_text("broken")
            server.process.send_signal(signal.SIGHUP)
            told = lambda: [one for one in server.lines if "the old certificate stays" in one]
            self.assertTrue(wait_until(told, 10))
            self.assertEqual(server.get("/live").status, 200)

    def test_bad_files(self):
        other_cert, other_key = make_certificate(self.folder, stem="other")
        cases = [
            (self.cert, self.folder / "absent", 3, "absent"),
            (self.folder / "absent", self.key, 3, "absent"),
            (self.cert, other_key, 3, "does not belong"),
            (self.key, self.key, 3, "--ssl-certfile"),
            (self.cert, self.cert, 3, "--ssl-keyfile"),
        ]
        for cert, key, expect, says in cases:
            flags = ("--ssl-certfile", cert, "--ssl-keyfile", key)
            code, _, error = run_artery("serve", fixtures.m1(), "--port", "0", *flags)
            self.assertEqual(code, expect, error)
            self.assertIn(says, error)
        code, _, error = run_artery("serve", fixtures.m1(), "--port", "0", "--ssl-keyfile", self.key)
        self.assertEqual(code, 2, error)
        self.assertIn("--ssl-certfile", error)


class Limits(Case):
    def test_flags(self):
        flags = ("--max-connections", "4", "--header-timeout", "1", "--body-timeout", "1")
        more = ("--max-header-bytes", "2K", "--max-body-bytes", "1K", "--keep-alive-timeout", "2")
        with Server(fixtures.m1(), *flags, *more) as server:
            with Connection(server.port) as slow:
                slow.send(b"GET /live HT")
                self.assertEqual(slow.response().status, 408)
                self.assertTrue(slow.ended())
            with Connection(server.port) as slow:
                slow.send(request_bytes("POST", "/tokenize", {"prompt": "x"})[:-5])
                response = slow.response()
                self.assert_refused(response, 408)
                self.assertTrue(response.headers["x-request-id"])
            response = server.get("/live", [("x-long", "a" * 4000)])
            self.assert_refused(response, 431)
            self.assertIn("--max-header-bytes", response.error["message"])
            response = server.post("/tokenize", {"prompt": "x" * 2000})
            self.assert_refused(response, 413)
            self.assertIn("--max-body-bytes", response.error["message"])
            self.too_many(server)

    def too_many(self, server):
        time.sleep(2.5)  # refused ones linger that long
        held = [Connection(server.port) for _ in range(4)]
        for connection in held:
            connection.request("GET", "/live")
            self.assertEqual(connection.response().status, 200)
        with Connection(server.port) as extra:
            response = extra.response()
            self.assert_refused(response, 503)
            self.assertGreater(int(response.headers["retry-after"]), 0)
            self.assertIn("--max-connections", response.error["message"])
        # Idle ones are closed after --keep-alive-timeout, so others get their turn by themselves.
        free = lambda: server.get("/live").status == 200
        self.assertTrue(wait_until(free, 10, every=0.2))
        for connection in held:
            connection.close()

    def test_probes_are_not_in_the_log(self):
        with Server(fixtures.m1()) as server:
            for _ in range(5):
                for path in ("/live", "/ready", "/health", "/metrics"):
                    server.get(path)
            server.complete("x", max_tokens=1)
            self.assertTrue(wait_until(lambda: "path=/v1/completions" in server.log, 10))
            for path in ("/live", "/ready", "/health", "/metrics"):
                self.assertNotIn(f"path={path} ", "\n".join(server.lines))

    def test_vllm_names(self):
        with Server(fixtures.m1(), "--metrics-compat", "vllm") as server:
            server.complete("x", max_tokens=2)
            # Counted just after the answer has left.
            for name, value in (("request_success_total", 1), ("num_requests_running", 0)):
                server.await_metric(f"vllm:{name}", value)


if __name__ == "__main__":
    harness.main("e2e_serving_test")

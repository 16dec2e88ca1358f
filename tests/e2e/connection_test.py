"""Connections, keys, stopping, and clients that leave, on the running program."""

import signal
import time

import fixtures
import harness
from harness import Case, Server, at_once, wait_until
from wire import Connection, Stream, request_bytes

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
STORY = "Once upon a time"
STORY_ANSWER = ", there was a little girl named Lily. She loved to play outside in the park. One day"


class Http(harness.SharedServer):
    model = staticmethod(fixtures.m1)
    flags = ("--allowed-origins", "http://a.example,http://b.example")

    def test_keep_alive_and_pipelining(self):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 8}
        with Connection(self.server.port) as connection:
            stream = {**body, "stream": True}
            requests = [
                request_bytes("GET", "/live", headers=[("x-request-id", "one")]),
                request_bytes("POST", TEXT, body, [("x-request-id", "two")]),
                request_bytes("POST", TEXT, stream, [("x-request-id", "three")]),
                request_bytes("GET", "/nothing", headers=[("x-request-id", "four")]),
                request_bytes("POST", TEXT, {"prompt": 5}, [("x-request-id", "five")]),
                request_bytes("POST", "/tokenize", {"prompt": "x"}, [("x-request-id", "six")]),
            ]
            for _ in range(3):
                connection.send(b"".join(requests))
                responses = [connection.response() for _ in requests]
                self.assertEqual([r.status for r in responses], [200, 200, 200, 404, 400, 200])
                ids = [r.headers["x-request-id"] for r in responses]
                self.assertEqual(ids, ["one", "two", "three", "four", "five", "six"])
                self.assertIn(b"data: [DONE]\n\n", responses[2].body)

    def test_a_body_in_single_bytes(self):
        raw = request_bytes("POST", "/tokenize", {"prompt": "Hello"})
        with Connection(self.server.port) as connection:
            for i in range(len(raw)):
                connection.send(raw[i : i + 1])
            self.assertEqual(connection.response().status, 200)

    def test_chunked_request(self):
        with Connection(self.server.port) as connection:
            connection.send(
                b"POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Type: application/json\r\n\r\n"
                b'5\r\n{"pro\r\nA\r\nmpt": "Hi"\r\n1\r\n}\r\n0\r\n\r\n'
            )
            expect = self.server.tokenize("Hi", add_special_tokens=True)
            self.assertEqual(connection.response().json["tokens"], expect)

    def test_expect_continue(self):
        body = b'{"prompt":"x","max_tokens":1}'
        head = (
            f"POST {TEXT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with Connection(self.server.port) as connection:
            connection.send(head.encode())
            self.assertEqual(connection.response().status, 100)
            connection.send(body)
            self.assertEqual(connection.response().status, 200)

    def test_connection_close_and_old_http(self):
        with Connection(self.server.port) as connection:
            connection.request("GET", "/live", headers=[("Connection", "close")])
            self.assertEqual(connection.response().status, 200)
            self.assertTrue(connection.ended())
        with Connection(self.server.port) as connection:
            connection.send(b"GET /live HTTP/1.0\r\n\r\n")
            self.assertEqual(connection.response().status, 200)
            self.assertTrue(connection.ended())

    def test_cors(self):
        response = self.server.get("/live", [("Origin", "http://a.example")])
        self.assertEqual(response.headers["access-control-allow-origin"], "http://a.example")
        self.assertIn("origin", response.headers["vary"].lower())
        response = self.server.get("/live", [("Origin", "http://evil.example")])
        self.assertNotIn("access-control-allow-origin", response.headers)
        asked = [
            ("Origin", "http://b.example"),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ]
        response = self.server.ask("OPTIONS", CHAT, headers=asked)
        self.assertIn(response.status, (200, 204))
        self.assertEqual(response.headers["access-control-allow-origin"], "http://b.example")
        self.assertIn("POST", response.headers["access-control-allow-methods"])
        self.assertIn("authorization", response.headers["access-control-allow-headers"])

    def test_request_ids(self):
        made = [self.server.get("/live").headers["x-request-id"] for _ in range(2)]
        self.assertNotEqual(*made)
        body = {"prompt": "x", "max_tokens": 1}
        response = self.server.post(TEXT, body, [("X-Request-Id", "my-id-5")])
        self.assertEqual(response.headers["x-request-id"], "my-id-5")
        line = lambda: [one for one in self.server.lines if "id=my-id-5" in one]
        self.assertTrue(wait_until(line, 10))
        for part in ("prompt_tokens=", "cached_tokens=", "generated_tokens=1", "queue_s=", "miss="):
            self.assertIn(part, line()[0])

    def test_metrics(self):
        before = self.server.metric("artery:generation_tokens_total")
        self.server.complete("x", max_tokens=7, ignore_eos=True)
        # The engine counts a step just after its tokens have left.
        self.server.await_metric("artery:generation_tokens_total", before + 7)


class Keys(Case):
    def test_key(self):
        with Server(fixtures.m1(), "--api-key", "secret") as server:
            body = {"prompt": "x", "max_tokens": 1}
            for headers in ([], [("Authorization", "Bearer wrong")], [("x-api-key", "secretx")]):
                response = server.post(TEXT, body, headers)
                self.assert_refused(response, 401, code="invalid_api_key")
                self.assertEqual(server.get("/v1/models", headers).status, 401)
                self.assertEqual(server.get("/metrics", headers).status, 401)
            for headers in ([("Authorization", "Bearer secret")], [("x-api-key", "secret")]):
                self.assertEqual(server.post(TEXT, body, headers).status, 200)
                self.assertEqual(server.get("/v1/models", headers).status, 200)
            for path in ("/live", "/health", "/ready", "/version", "/"):
                self.assertEqual(server.get(path).status, 200, path)
            forwarded = [("X-Forwarded-For", "10.0.0.1")]
            self.assertEqual(server.get("/artery/status").status, 200)
            self.assertEqual(server.get("/artery/status", forwarded).status, 401)
            self.assertNotIn("secret", server.log)


class Stopping(Case):
    # Seconds of decoding: on a loaded machine 500 steps may pass before a client has its headers.
    LONG = {"prompt": "x", "max_tokens": 5000, "ignore_eos": True, "temperature": 0}

    def test_drain_lets_streams_end(self):
        with Server(fixtures.m2(), "--shutdown-timeout", "600") as server:
            with Stream(server.port, TEXT, self.LONG) as stream, Connection(server.port) as other:
                chunks = [chunk for chunk, _ in zip(stream, range(3))]
                other.request("POST", TEXT, {**self.LONG, "max_tokens": 4800})
                self.assertTrue(wait_until(lambda: server.status()["running"] == 2))
                server.process.send_signal(signal.SIGTERM)
                self.assertTrue(wait_until(lambda: server.get("/ready").status == 503))
                response = server.post(TEXT, self.LONG)
                self.assert_refused(response, 503)
                self.assertGreater(int(response.headers["retry-after"]), 0)
                self.assertEqual(server.get("/live").status, 200)
                chunks += list(stream)
                self.assertTrue(stream.done)
                self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
                self.assertEqual(other.response().json["usage"]["completion_tokens"], 4800)
            self.assertEqual(server.wait(), 143)

    def test_second_signal_ends_at_once(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            server = Server(fixtures.m2())
            with Stream(server.port, TEXT, {**self.LONG, "max_tokens": 30000}) as stream:
                next(iter(stream))
                server.process.send_signal(number)
                self.assertTrue(wait_until(lambda: server.get("/ready").status == 503))
                began = time.monotonic()
                server.process.send_signal(number)
                self.assertEqual(server.wait(), code)
                self.assertLess(time.monotonic() - began, 5)
            server.stop(code)

    def test_drain_has_an_end(self):
        with Server(fixtures.m2(), "--shutdown-timeout", "0.5") as server:
            with Stream(server.port, TEXT, {**self.LONG, "max_tokens": 30000}) as stream:
                chunks = iter(stream)
                next(chunks)
                server.process.send_signal(signal.SIGTERM)
                last = None
                for last in chunks:
                    pass
                self.assertIn("error", last, "a cut stream ends with an error event")
            self.assertEqual(server.wait(), 143)

    def test_signal_while_loading(self):
        server = Server(fixtures.m2(), ready=False)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 143)

    def test_fingerprint_is_stable(self):
        prints = []
        for model in (fixtures.m1(), fixtures.m1(), fixtures.m2()):
            with Server(model) as server:
                answer = server.complete("x", max_tokens=1)
                prints.append(answer["system_fingerprint"])
                self.assertEqual(server.status()["system_fingerprint"], prints[-1])
                for chunk in server.stream(TEXT, {"prompt": "x", "max_tokens": 3}):
                    self.assertEqual(chunk["system_fingerprint"], prints[-1])
        self.assertEqual(prints[0], prints[1])
        self.assertNotEqual(prints[0], prints[2])


class Full(Case):
    def test_too_many_requests(self):
        flags = ("--max-num-seqs", "1", "--max-queued-requests", "2")
        long = {"prompt": "x", "max_tokens": 30000, "ignore_eos": True}
        with Server(fixtures.m2(), *flags) as server:
            waiting = [Connection(server.port) for _ in range(8)]
            for i, connection in enumerate(waiting):
                connection.request("POST", TEXT, long)
                # The first one leaves the queue before the others come.
                self.assertTrue(i > 0 or wait_until(lambda: server.status()["running"] == 1))
            self.assertTrue(wait_until(lambda: server.status()["rejected"] == 5))
            status = server.status()
            self.assertEqual((status["running"], status["waiting"]), (1, 2))
            response = server.post(TEXT, {"prompt": "x", "max_tokens": 1, "stream": True})
            self.assert_refused(response, 429)
            self.assertGreater(int(response.headers["retry-after"]), 0)
            for path in ("/health", "/ready", "/live"):
                self.assertEqual(server.get(path).status, 200, path)
            for connection in waiting:
                connection.close()
            self.assertTrue(wait_until(server.idle))
            self.assertEqual(server.post(TEXT, {"prompt": "x", "max_tokens": 1}).status, 200)


if __name__ == "__main__":
    harness.main("e2e_connection_test")

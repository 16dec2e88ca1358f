"""Mixed load for a while, with memory flat at its end. A minute by default, an hour with
ARTERY_TEST_LONG=1, ARTERY_SOAK_SECONDS for any other time; tests/soak runs it under ASan.
"""

import os
import random
import statistics
import threading
import time

# ASan keeps freed memory to catch its use: less of it, or the first minutes are growth.
os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=16:detect_leaks=1:abort_on_error=0")

import fixtures
import harness
from harness import Case, Pulse, Server, wait_until
from wire import Connection, Stream, request_bytes

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20
SECONDS = float(os.environ.get("ARTERY_SOAK_SECONDS") or (3600 if harness.LONG else 60))
WORKERS = 6


class Load:
    """One client that does one thing after another, drawn at random."""

    def __init__(self, server, seed):
        self.server, self.rng = server, random.Random(seed)
        self.counts = {}

    def run(self, until):
        kinds = [
            self.complete, self.complete, self.chat, self.stream, self.stream, self.leave,
            self.leave, self.tokens, self.info, self.bad, self.large, self.silent,
        ]
        while time.monotonic() < until:
            kind = self.rng.choice(kinds)
            kind()
            self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1

    def text(self):
        words = ["one", "day", "Lily", "dog", "🙂", "日本", "\n", "{", "sun"]
        return " ".join(self.rng.choices(words, k=self.rng.randrange(1, 60)))

    def body(self, **more):
        body = {
            "max_tokens": self.rng.randrange(1, 80),
            "temperature": self.rng.choice([0, 0.7, 1.5]),
            "n": self.rng.choice([1, 1, 2]),
            "seed": self.rng.randrange(1000),
            "ignore_eos": self.rng.random() < 0.3,
            **more,
        }
        if self.rng.random() < 0.2:
            body["stop"] = ["day", "."]
        if self.rng.random() < 0.2:
            body["cache_salt"] = f"salt{self.rng.randrange(5)}"
        return body

    def expect(self, response, *statuses):
        if response.status not in statuses:
            raise AssertionError(f"{response.status} is not in {statuses}: {response}")

    def complete(self):
        logprobs = self.rng.choice([None, 0, 5])
        body = self.body(prompt=self.text(), logprobs=logprobs, echo=self.rng.random() < 0.1)
        self.expect(self.server.post(TEXT, body), 200, 429)

    def chat(self):
        messages = [{"role": "user", "content": self.text()}]
        response = self.server.post(CHAT, self.body(messages=messages))
        self.expect(response, 200, 429, 501, 400)  # M1 has no template

    def stream(self):
        try:
            with Stream(self.server.port, TEXT, self.body(prompt=self.text())) as stream:
                for _ in stream:
                    pass
        except AssertionError as refused:
            if "no stream: 429" not in str(refused):
                raise

    def leave(self):
        raw = request_bytes("POST", TEXT, self.body(prompt=self.text(), stream=True))
        with Connection(self.server.port) as connection:
            try:
                connection.send(raw[: self.rng.randrange(len(raw) + 200)])
                time.sleep(self.rng.random() * 0.05)
                if self.rng.random() < 0.5:
                    connection.reset()
            except OSError:
                pass

    def tokens(self):
        text = self.text()
        response = self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        self.expect(response, 200)
        back = self.server.post("/detokenize", {"tokens": response.json["tokens"]})
        if back.json["prompt"] != text:
            raise AssertionError(f"{text!r} came back as {back.json['prompt']!r}")

    def info(self):
        for path in ("/metrics", "/v1/models", "/health", "/artery/status", "/nothing"):
            self.expect(self.server.get(path), 200, 404)

    def bad(self):
        bodies = [b"{", b"[" * 500, b'{"prompt": 5}', b'{"prompt": "x", "n": -1}', b"\xff\xfe", b""]
        self.expect(self.server.post(TEXT, self.rng.choice(bodies)), 400)

    def large(self):
        size = self.rng.randrange(1, 4 * MIB)
        self.expect(self.server.post(TEXT, {"prompt": "a" * size}), 200, 400, 429)

    def silent(self):
        body = self.body(prompt="x", stream=True, max_tokens=300, logprobs=5)
        with Connection(self.server.port) as connection:
            connection.send(request_bytes("POST", TEXT, body))
            time.sleep(self.rng.random())


class Soak(Case):
    def test_mixed_load_with_memory_flat(self):
        flags = ("--max-num-seqs", "16", "--stream-stall-timeout", "2", "--log-level", "warn")
        with Server(fixtures.m1(), *flags) as server:
            sizes = self.run_load(server)
            self.assertTrue(wait_until(server.idle, 60))
            self.assertTrue(wait_until(lambda: server.status()["pages_in_use"] == 0, 10))
            server.await_metric("artery:http_body_bytes", 0)
            middle = statistics.median(sizes[len(sizes) // 3 : 2 * len(sizes) // 3])
            last = statistics.median(sizes[2 * len(sizes) // 3 :])
            print(f"    RSS {sizes[0] / MIB:.0f} MiB at start, {middle / MIB:.0f} in the middle "
                  f"third, {last / MIB:.0f} in the last, {max(sizes) / MIB:.0f} at most")
            self.assertLess(last, 1.05 * middle + 24 * MIB, "memory grows")
        self.assertNotIn("AddressSanitizer", server.log)
        self.assertNotIn("LeakSanitizer", server.log)

    def run_load(self, server):
        until = time.monotonic() + SECONDS
        loads = [Load(server, seed) for seed in range(WORKERS)]
        failures = []

        def work(load):
            try:
                load.run(until)
            except Exception as error:  # told by the main thread
                failures.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=work, args=(load,)) for load in loads]
        sizes = []
        with Pulse(server, "/health", every=0.2) as health:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                sizes.append(server.resident_bytes())
                time.sleep(min(1.0, SECONDS / 60))
        self.assertEqual(failures, [], server.log)
        self.assertEqual(health.statuses, {200})
        total = {}
        for load in loads:
            for kind, count in load.counts.items():
                total[kind] = total.get(kind, 0) + count
        print(f"    {sum(total.values())} requests: {total}; /health p99 "
              f"{health.quantile(0.99) * 1e3:.1f} ms")
        return sizes


if __name__ == "__main__":
    harness.main("e2e_soak_test")

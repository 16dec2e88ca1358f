"""Hard use over real sockets: hundreds of streams of which half never read, requests aborted at
random moments, and probes that stay quick meanwhile.

ARTERY_ABORTS and ARTERY_STREAMS set the counts; ARTERY_TEST_LONG=1 makes them 10,000 and 1,000.
"""

import os
import random
import selectors
import socket
import time

import fixtures
import harness
from harness import Case, Pulse, Server, at_once, wait_until
from wire import Connection, request_bytes

TEXT = "/v1/completions"
MIB = 1 << 20
STREAMS = int(os.environ.get("ARTERY_STREAMS") or (1000 if harness.LONG else 400))
ABORTS = int(os.environ.get("ARTERY_ABORTS") or (10000 if harness.LONG else 500))


class Client:
    """One stream. A reader keeps the last bytes only; the others have a small receive buffer."""

    END = b"data: [DONE]\n\n\r\n0\r\n\r\n"

    def __init__(self, port, body, reads):
        self.reads, self.tail, self.bytes, self.done = reads, b"", 0, False
        self.socket = socket.socket()
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(request_bytes("POST", TEXT, body))
        self.socket.setblocking(False)

    def on_readable(self):
        raw = self.socket.recv(1 << 16)
        self.bytes += len(raw)
        self.tail = (self.tail + raw)[-len(self.END) :]
        self.done = self.tail == self.END
        return self.done or not raw


class ManyStreams(Case):
    # Log probabilities make more than the sockets of a client that does not read can hold, even
    # when many tokens share a delta.
    SILENT = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "logprobs": 20, "stream": True}
    READER = {"prompt": "y", "max_tokens": 40, "ignore_eos": True, "stream": True}

    def test_half_of_them_never_read(self):
        flags = ("--max-connections", STREAMS + 64, "--max-queued-requests", STREAMS + 64)
        more = ("--stream-stall-timeout", "5", "--disable-log-requests", "--max-num-seqs", "256")
        with Server(fixtures.m1(), *flags, *more) as server:
            server.complete("warm", max_tokens=2)
            before = server.resident_bytes()
            with Pulse(server, "/health", every=0.05) as health:
                with Pulse(server, "/metrics", every=0.2) as metrics:
                    clients = [
                        Client(server.port, self.READER if i % 2 else self.SILENT, bool(i % 2))
                        for i in range(STREAMS)
                    ]
                    peak = self.read_all(server, [c for c in clients if c.reads])
                    stalled = self.wait_for_stalls(server, STREAMS - STREAMS // 2)
            grown = max(peak, server.resident_bytes()) - before
            print(
                f"    {STREAMS} streams: RSS +{grown / MIB:.0f} MiB, {stalled:.0f} given up, "
                f"/health p50 {health.quantile(0.5) * 1e3:.1f} ms p99 "
                f"{health.quantile(0.99) * 1e3:.1f} ms, /metrics p50 "
                f"{metrics.quantile(0.5) * 1e3:.1f} ms p99 {metrics.quantile(0.99) * 1e3:.1f} ms"
            )
            self.assertEqual(health.statuses | metrics.statuses, {200})
            self.assertLess(health.quantile(0.5), 0.05)
            self.assertLess(metrics.quantile(0.5), 0.05)
            # 256 KiB wait for each that does not read, and some for its request.
            self.assertLess(grown, STREAMS // 2 * 600 * 1024 + 64 * MIB)
            self.assertTrue(wait_until(server.idle, 60))
            self.assertTrue(wait_until(lambda: server.status()["pages_in_use"] == 0, 10))
            server.await_metric("artery:kv_cache_usage_perc", 0)
            for client in clients:
                client.socket.close()
            self.assertEqual(server.complete("x", max_tokens=2)["usage"]["completion_tokens"], 2)

    def read_all(self, server, readers):
        """Reads until all have their [DONE]; gives the largest resident size seen."""
        selector = selectors.DefaultSelector()
        for client in readers:
            selector.register(client.socket, selectors.EVENT_READ, client)
        left, peak, last = len(readers), 0, time.monotonic()
        while left:
            ready = selector.select(120)
            self.assertTrue(ready, f"{left} readers got nothing for 120 s\n{server.log}")
            for key, _ in ready:
                if key.data.on_readable():
                    selector.unregister(key.fileobj)
                    left -= 1
            if time.monotonic() - last > 0.2:
                peak, last = max(peak, server.resident_bytes()), time.monotonic()
        self.assertTrue(all(client.done for client in readers), "a reader's stream was cut")
        return max(peak, server.resident_bytes())

    def wait_for_stalls(self, server, count):
        # A reset by the server ends a silent client's stream; a few fit in the socket buffers, and
        # waiting for these would take all the time there is.
        name = "artery:stream_stalls_total"
        wait_until(lambda: server.metric(name) >= 0.9 * count, 240, every=0.5)
        stalled = server.metric(name)
        self.assertGreaterEqual(stalled, 0.9 * count, server.log)
        return stalled


class Aborted(Case):
    """Requests left at random moments leave no page behind."""

    def leave(self, server, rng):
        connection = Connection(server.port)
        body = {
            "prompt": "a b c d " * rng.randrange(1, 40),
            "max_tokens": rng.randrange(1, 200),
            "n": rng.choice([1, 1, 1, 3]),
            "stream": rng.random() < 0.6,
            "temperature": 1,
            "ignore_eos": True,
        }
        raw = request_bytes("POST", TEXT, body)
        is_whole = rng.random() < 0.9
        if not is_whole:
            raw = raw[: rng.randrange(len(raw))]
        try:
            connection.send(raw)
            time.sleep(rng.random() ** 3 * 0.08)
            if is_whole and rng.random() < 0.3:
                connection.socket.recv(rng.choice([1, 100, 5000]))
            how = rng.choice([connection.close, connection.reset, connection.half_close])
            how()
            if how == connection.half_close:
                time.sleep(rng.random() * 0.02)
        except OSError:
            pass  # the server may be quicker
        finally:
            connection.close()

    def test_no_page_is_left(self):
        flags = ("--kv-cache-dtype", "f32", "--max-num-seqs", "8", "--max-queued-requests", "1024")
        pool = ("--kv-cache-memory-bytes", 60 * 20480)
        with Server(fixtures.m1(), *flags, *pool, "--disable-log-requests") as server:
            rngs = [random.Random(seed) for seed in range(12)]

            def worker(rng):
                for _ in range(-(-ABORTS // len(rngs))):
                    self.leave(server, rng)

            with Pulse(server, "/health", every=0.1) as health:
                at_once([lambda rng=rng: worker(rng) for rng in rngs])
            self.assertEqual(health.statuses, {200})
            self.assertTrue(wait_until(server.idle), server.status())
            self.assertTrue(wait_until(lambda: server.status()["pages_in_use"] == 0, 10))
            server.await_metric("artery:kv_cache_usage_perc", 0)
            server.await_metric("artery:num_requests_running", 0)
            server.await_metric("artery:http_body_bytes", 0)
            self.assertGreater(server.status()["aborted"], ABORTS / 20)
            answer = server.complete("Once upon a time", temperature=0, max_tokens=24)
            self.assertTrue(answer["choices"][0]["text"].startswith(", there was a little girl"))
            # All pages can be had again: a request that needs most of the pool runs.
            big = server.complete("a " * 450, temperature=0, max_tokens=60, ignore_eos=True)
            self.assertEqual(big["usage"]["completion_tokens"], 60)


if __name__ == "__main__":
    harness.main("e2e_hard_use_test")

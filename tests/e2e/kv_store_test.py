"""The KV store behind the prefix cache, from outside: field reports FR-I1 to FR-I4 and FR-E1 with
the store on, and quotas. ARTERY_TEST_LONG=1 takes the reports' own sizes and every single offset.
"""

import os
import random
import signal
import subprocess
import threading
import time
import unittest

import fixtures
import harness
from harness import Case, Server, at_once, wait_until
from kv_tools import (
    NO_CACHE, Folder, ask, flip, flushed, ids, misses, spread, swap, tier, zero_page,
)

WORDS = "the quick brown fox jumps over a lazy dog while one two three four crows watch".split()


def words(count, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(count))


class Restart(Case):
    """FR-I1"""

    def check(self, model, vocabulary, flags=(), timed=True, length=2000):
        prompt = ids(length, 1, vocabulary)
        longer = prompt + ids(150, 2, vocabulary)
        least = length - 256
        with Server(model, *flags, *NO_CACHE) as server:
            cold = [ask(server, prompt), ask(server, longer)]
        with Folder() as folder:
            flags = (*flags, "--kv-dir", folder.path, "--kv-max-bytes", "400M")
            server = Server(model, *flags)
            text, cached, _ = ask(server, prompt)
            self.assertEqual((text, cached), (cold[0][0], 0))
            time.sleep(2)
            server.kill()
            for end in ("kill", "stop"):
                with self.subTest(after="kill -9" if end == "kill" else "SIGTERM"):
                    server = Server(model, *flags)
                    for (text, _, slow), asked in zip(cold, (prompt, longer)):
                        again, cached, quick = ask(server, asked)
                        self.assertEqual(again, text)
                        self.assertGreaterEqual(cached, least)
                        if timed and asked is prompt:
                            self.assertLess(quick, 0.2 * slow)
                    disk = tier(server, "disk")
                    self.assertGreaterEqual(disk["hit_tokens"], least)
                    self.assertEqual(disk["errors"]["checksum"], 0)
                    self.assertEqual(disk["recovery_cuts"], 0)
                    self.assertGreater(server.metric("artery:kv_offload_load_bytes_total"), 0)
                    server.stop()

    def test_random_model(self):
        self.check(fixtures.m2(), fixtures.M2_VOCAB, timed=False)

    @unittest.skipUnless(harness.LONG, "ARTERY_TEST_LONG=1")
    def test_real_model(self):
        self.check(fixtures.smollm2(), 49_000)


class Damage(Case):
    """FR-I2"""

    def setUp(self):
        self.rng = random.Random(os.environ.get("ARTERY_SEED", "1"))
        self.prompts = [words(90, seed) for seed in range(5)]
        self.folder = Folder()
        self.addCleanup(self.folder.__exit__)
        self.flags = ("--kv-dir", self.folder.path, "--kv-max-bytes", "64M")
        with Server(fixtures.m1(), *NO_CACHE) as server:
            self.cold = [ask(server, prompt)[0] for prompt in self.prompts]
        with Server(fixtures.m1(), *self.flags) as server:
            self.assertEqual([ask(server, prompt)[0] for prompt in self.prompts], self.cold)
            flushed(server)
        self.secret = (self.folder.path / "secret").read_bytes()
        self.folder.keep()

    def look(self, what):
        """Asks everything twice and gives the cache's report. Nothing can be found without the
        secret: a server refuses to start, and makes no other."""
        secret = self.folder.path / "secret"
        if secret.read_bytes() != self.secret:
            with self.subTest(damage=what):
                ended = subprocess.run(
                    [harness.artery_bin(), "serve", fixtures.m1(), "--port", "0",
                     *map(str, self.flags)],
                    capture_output=True, text=True, timeout=120, env=harness.clean_environment(),
                )
                self.assertEqual(ended.returncode, 3, ended.stderr)
                self.assertIn("secret: damaged", ended.stderr)
            return None, None
        with self.subTest(damage=what), Server(fixtures.m1(), *self.flags) as server:
            first = [ask(server, prompt) for prompt in self.prompts]
            self.assertEqual([text for text, _, _ in first], self.cold)
            again = [ask(server, prompt) for prompt in self.prompts]
            self.assertEqual([text for text, _, _ in again], self.cold)
            self.assertGreater(min(cached for _, cached, _ in again), 0)
            self.assertLess(len(server.lines), 60, "a storm of logs")
            return tier(server, "disk"), misses(server)
        return None, None

    def test_undamaged(self):
        disk, missed = self.look("none")
        self.assertGreater(disk["hit_tokens"], 500)
        self.assertEqual(missed["checksum"], 0)

    def test_flipped_bytes(self):
        seen = 0
        for path in self.folder.files():
            offsets = spread(path, 20, self.rng)
            turns = [[at] for at in offsets] if harness.LONG else [offsets]
            for turn in turns:
                self.folder.restore()
                flip(path, turn, self.rng)
                disk, missed = self.look(f"{path.name} flipped at {turn}")
                if disk is not None and path.name.startswith("seg-"):
                    seen += missed["checksum"] + disk["errors"]["checksum"]
                    seen += disk["recovery_cuts"]
        self.assertGreater(seen, 0, "no flipped byte of a record was noticed")

    def test_a_record_is_dropped_once(self):
        """Every payload of a segment damaged: each is one failure, not one a request."""
        for path in self.folder.files("seg-*"):
            flip(path, range(3000, path.stat().st_size, 4096), self.rng)
        with Server(fixtures.m1(), *self.flags) as server:
            for _ in range(3):
                for prompt, text in zip(self.prompts, self.cold):
                    self.assertEqual(ask(server, prompt)[0], text)
            disk = tier(server, "disk")
            # What was damaged gets lost at the open, or is noticed when it is read.
            failures = disk["errors"]["checksum"]
            self.assertLessEqual(failures, len(self.prompts) * 4)
            self.assertGreater(failures + disk["recovery_cuts"] + misses(server)["checksum"], 0)

    def test_cut_appended_swapped_zeroed(self):
        files = self.folder.files()
        segments = self.folder.files("seg-*")
        big = [path for path in files if path.stat().st_size >= 4096]
        for path in files if harness.LONG else big[:: max(len(big) // 3, 1)]:
            self.folder.restore()
            os.truncate(path, self.rng.randrange(path.stat().st_size + 1))
            self.look(f"{path.name} cut")
            self.folder.restore()
            with open(path, "ab") as file:
                file.write(self.rng.randbytes(5000))
            self.look(f"{path.name} appended to")
            self.folder.restore()
            zero_page(path, self.rng)
            self.look(f"{path.name} with a page of zeros")
        for a, b in [(segments[0], segments[-1]), (segments[0], self.folder.path / "super")]:
            self.folder.restore()
            if a != b:
                swap(a, b)
            self.look(f"{a.name} and {b.name} swapped")


class Quota(Case):
    """A tenant over its quota, over a kill, and with a lower one."""

    KEY = [("x-api-key", "alice-key")]

    def write_keys(self, quota):
        line = f"kv_quota = {quota}\n" if quota else ""
        self.keys.touch(0o600)
        self.keys.write_text('[[key]]\nname = "alice"\nkey = "alice-key"\nadmin = true\n' + line)

    def ask(self, server, seed):
        body = {"prompt": words(90, seed), "max_tokens": 4, "temperature": 0, "timings": True}
        response = server.post("/v1/completions", body, headers=self.KEY)
        self.assertEqual(response.status, 200, response)
        return response.json["choices"][0]["text"], response.json["timings"]

    def alice(self, server):
        found = [one for one in tier(server, "disk")["tenants"] if one["tenant"] == "alice"]
        return found[0] if found else {"bytes": 0, "quota_bytes": 0}

    def forget_ram(self, server):
        self.assertEqual(server.post("/reset_prefix_cache", {}, headers=self.KEY).status, 200)

    def test_kept_over_a_kill_and_lowered(self):
        folder = Folder()
        self.addCleanup(folder.__exit__)
        self.keys = folder.root / "keys.toml"
        self.write_keys(None)
        flags = ("--kv-dir", folder.path, "--kv-max-bytes", "64M", "--api-keys", self.keys)
        server = Server(fixtures.m1(), *flags)
        self.addCleanup(lambda: server.kill())
        texts = [self.ask(server, 0)[0]]
        flushed(server)
        each = self.alice(server)["bytes"]
        self.assertGreater(each, 0)
        quota = 4 * each
        self.write_keys(quota)
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: self.alice(server)["quota_bytes"] == quota, 20))
        for seed in range(1, 13):
            texts.append(self.ask(server, seed)[0])
            self.assertLessEqual(self.alice(server)["bytes"], quota)
            time.sleep(0.2)
        flushed(server)
        self.forget_ram(server)
        self.assertEqual(self.ask(server, 1)[1]["cache_miss"], "tenant")
        self.assertGreater(self.ask(server, 12)[1]["disk_tokens"], 0)
        flushed(server)

        server.kill()
        server = Server(fixtures.m1(), *flags)
        self.assertLessEqual(self.alice(server)["bytes"], quota)
        self.assertGreater(self.alice(server)["bytes"], quota // 2)
        for seed in (11, 12, 1):  # 1 was asked again last
            text, timings = self.ask(server, seed)
            self.assertEqual(text, texts[seed])
            self.assertGreater(timings["disk_tokens"], 0, seed)
        self.assertEqual(self.ask(server, 5)[1]["disk_tokens"], 0)
        self.assertLessEqual(self.alice(server)["bytes"], quota)

        flushed(server)
        self.write_keys(2 * each)
        server.process.send_signal(signal.SIGHUP)
        fallen = wait_until(lambda: self.alice(server)["bytes"] <= 2 * each, 20)
        self.assertTrue(fallen, self.alice(server))
        self.forget_ram(server)
        text, timings = self.ask(server, 5)
        self.assertEqual(text, texts[5])
        self.assertGreater(timings["disk_tokens"], 0, "the newest stays")
        server.stop()


class Settings(Case):
    """FR-I3: everything that changes KV bytes is a namespace of its own; what does not is not."""

    def test_one_folder(self):
        prompt = words(90, 3)
        model = fixtures.m1()
        rope = fixtures.m1_with(
            "m1-rope.gguf", llama__rope__freq_base=fixtures.gguf_file.f32(20000.0)
        )
        settings = {
            "int16": (model, "--kv-cache-dtype", "int16"),
            "f32": (model, "--kv-cache-dtype", "f32"),
            "f16": (model, "--kv-cache-dtype", "f16"),
            "int16v8": (model, "--kv-cache-dtype", "int16v8"),
            "reference": (model, "--numerics", "reference"),
            "rope": (rope, "--kv-cache-dtype", "int16"),
            "q8_0": (fixtures.m1_q8_0(), "--kv-cache-dtype", "int16"),
        }
        with Folder() as folder:
            store = ("--kv-dir", folder.path, "--kv-max-bytes", "64M")
            cold = {}
            for name, flags in settings.items():
                with self.subTest(first=name), Server(*flags, *store) as server:
                    cold[name] = ask(server, prompt)
                    self.assertEqual(cold[name][1], 0)
                    flushed(server)
            for name, flags in settings.items():
                with self.subTest(own=name), Server(*flags, *store) as server:
                    text, cached, _ = ask(server, prompt)
                    self.assertEqual(text, cold[name][0])
                    self.assertGreater(cached, 100)
                    self.assertGreater(tier(server, "disk")["hit_tokens"], 100)
            # The same bits, computed otherwise: hits.
            with Server(*settings["int16"], *store, "--isa", "scalar", "--threads", 1) as server:
                text, cached, _ = ask(server, prompt)
                self.assertEqual(text, cold["int16"][0])
                self.assertGreater(cached, 100)


class Cap(Case):
    """FR-I4"""

    def check(self, model, vocabulary, cap, flags, rounds, prompts, unknown):
        with Folder() as folder:
            folder.path.mkdir()
            stranger = folder.path / "core.dump"
            stranger.write_bytes(os.urandom(1 << 20) * (unknown >> 20))
            flags = (*flags, "--kv-dir", folder.path, "--kv-free-floor", "1M")
            seed = 0
            for turn in range(rounds):
                with self.subTest(restart=turn), Watch(folder, cap) as watch:
                    with Server(model, *flags, "--kv-max-bytes", cap) as server:
                        for _ in range(prompts):
                            seed += 1
                            ask(server, ids(2000, seed, vocabulary), 1)
                        flushed(server)
                        disk = tier(server, "disk")
                        self.assertEqual(disk["unknown_files"], 1)
                        self.assertLessEqual(disk["bytes_used"], cap)
                        self.assertIn("core.dump", "\n".join(server.lines))
                        # The newest is there.
                        self.assertTrue(ask(server, ids(2000, seed, vocabulary), 1)[1] > 1700)
                    self.assertLessEqual(watch.most, cap)
            self.assertGreater(folder.own_bytes(), cap // 2, "the cap was never reached")
            with Server(model, *flags, "--kv-max-bytes", cap // 2) as server:
                self.assertLessEqual(folder.own_bytes(), cap // 2)
                self.assertGreater(tier(server, "disk")["records"], 0)
            self.assertEqual(stranger.stat().st_size, unknown)

    def test_random_model(self):
        flags = ("--kv-cache-dtype", "f32")
        self.check(fixtures.m2(), fixtures.M2_VOCAB, 24 << 20, flags, 10, 2, 5 << 20)

    @unittest.skipUnless(harness.LONG, "ARTERY_TEST_LONG=1")
    def test_real_model(self):
        self.check(fixtures.smollm2(), 49_000, 200 << 20, (), 10, 2, 50 << 20)


class Watch:
    """The most bytes that a folder's own files took at any time."""

    def __init__(self, folder, cap):
        self.folder, self.most = folder, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(0.02):
            self.most = max(self.most, self.folder.own_bytes())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class Crowd(Case):
    """FR-E1 with a RAM cache of about ten prompts before the store."""

    def test_nobody_gets_anothers_text(self):
        count, rounds = (200, 20) if harness.LONG else (40, 3)
        prompts = [f"The word is marker{i}. " + words(60, i) for i in range(count)]
        with Server(fixtures.m1(), *NO_CACHE) as server:
            solo = [ask(server, prompt, 12)[0] for prompt in prompts]
        with Folder() as folder:
            flags = ("--kv-dir", folder.path, "--kv-max-bytes", "64M", "--max-num-seqs", 32)
            flags += ("--kv-cache-memory-bytes", "16M")
            with Server(fixtures.m1(), *flags) as server:
                for prompt, text in zip(prompts, solo):
                    self.assertEqual(ask(server, prompt, 12)[0], text)
                rng = random.Random(4)
                for turn in range(rounds):
                    for crowd in (2, 7, 32):
                        picks = [rng.randrange(count) for _ in range(crowd)]
                        jobs = [lambda i=i: ask(server, prompts[i], 12) for i in picks]
                        for i, (text, cached, _) in zip(picks, at_once(jobs)):
                            self.assertEqual(text, solo[i], f"round {turn}, {crowd} at once")


if __name__ == "__main__":
    harness.main("e2e_kv_store_test")

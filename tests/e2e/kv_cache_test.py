"""The KV store as users meet it: a second turn hits RAM, a turn after a restart hits the disk with the
same tokens, flags, promises, folders that are taken or not a store. Damage: kv_store_test.py.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import fixtures
import harness
from harness import Case, Server, run_artery, token_logprobs, wait_until

sys.path.append(str(fixtures.ROOT / "tools"))
from read_kv_segment import crc32c  # noqa: E402

JOURNAL_S = 1.2  # what was written is in the journal a second later
TEXT = "/v1/completions"
STORY = "Once upon a time there was a dog who lived in the park and liked to play with a ball. " * 6
ROOM = ("--kv-max-bytes", "256M", "--kv-free-floor", "1M")


def disk_tier(server):
    tiers = server.answer_get("/artery/cache")["tiers"]
    found = [tier for tier in tiers if tier["tier"] == "disk"]
    return found[0] if found else None


def settle(server):
    """Until what was computed is on the disk and in its journal."""
    def is_written():
        tier = disk_tier(server)
        return tier["written"]["records"] > 0 and tier["written"]["queued"] == 0
    assert wait_until(is_written, 30), disk_tier(server)
    time.sleep(JOURNAL_S)


def of_version(block, version):
    """A block of the store with another format version and a right checksum (docs/formats)."""
    block = bytearray(block)
    block[8:12] = version.to_bytes(4, "little")
    block[12:16] = bytes(4)
    block[12:16] = crc32c(bytes(block)).to_bytes(4, "little")
    return bytes(block)


class Folders(Case):
    model = staticmethod(fixtures.m1)

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="artery-kv-")
        self.addCleanup(self._folder.cleanup)
        self.folder = str(Path(self._folder.name) / "store")

    def start(self, *flags, folder=None):
        return Server(self.model(), "--kv-dir", folder or self.folder, *ROOM, *flags)

    def ask(self, server, prompt=STORY, **body):
        return server.complete(prompt, max_tokens=8, temperature=0, logprobs=2, timings=True, **body)


class AcrossRestarts(Folders):
    def shows(self, ids):
        """Whether these token ids can be read in the folder's files."""
        plain = b"".join(i.to_bytes(4, "little") for i in ids[16:24])
        return any(plain in path.read_bytes() for path in Path(self.folder).glob("seg-*"))

    def test_second_turn_ram_third_turn_disk_same_tokens(self):
        server = self.start()
        try:
            first = self.ask(server)
            self.assertEqual(first["usage"]["prompt_cache_hit_tokens"], 0)
            self.assertEqual(first["timings"]["cache_miss"], "cold")
            again = self.ask(server)
            self.assert_usage(again["usage"])
            self.assertGreater(again["usage"]["prompt_cache_hit_tokens"], 0)
            self.assertEqual(again["timings"]["disk_tokens"], 0)
            settle(server)
        finally:
            server.kill()  # no chance to write anything more
        with self.start() as server:
            self.assertGreater(disk_tier(server)["recovered_records"], 0)
            third = self.ask(server)
            self.assert_usage(third["usage"])
            hit = third["usage"]["prompt_cache_hit_tokens"]
            self.assertGreaterEqual(hit, again["usage"]["prompt_cache_hit_tokens"])
            self.assertEqual(third["timings"]["disk_tokens"], hit)
            self.assertEqual(server.metric("artery:kv_offload_load_time_total") > 0, True)
            self.assertGreater(server.metric("artery:kv_offload_load_bytes_total"), 0)
            report = server.answer_get("/artery/cache")
            self.assertEqual(disk_tier(server)["hit_tokens"], hit)
            missed = sum(report["miss_tokens"].values())
            self.assertEqual(report["hit_tokens"] + missed, report["prompt_tokens"])
            self.assertEqual(report["prompt_tokens"], third["usage"]["prompt_tokens"])
            cold = self.ask(server, cache_salt="alone")
            self.assertEqual(cold["usage"]["prompt_cache_hit_tokens"], 0)
        for answer in (again, third, cold):
            self.assertEqual(token_logprobs(answer), token_logprobs(first))
            self.assertEqual(answer["choices"][0]["text"], first["choices"][0]["text"])

    def test_stopping_keeps_what_was_just_written(self):
        with self.start() as server:
            ids = server.tokenize(STORY, add_special_tokens=True)
            self.ask(server)
        self.assertTrue(self.shows(ids))
        with self.start() as server:
            self.assertGreater(self.ask(server)["timings"]["disk_tokens"], 0)

    def test_dropping_ram_leaves_the_disk(self):
        with self.start() as server:
            first = self.ask(server)
            settle(server)
            dropped = server.post("/reset_prefix_cache", {})
            self.assertEqual((dropped.status, dropped.json["tiers"]), (200, ["ram"]))
            second = self.ask(server)
            self.assertGreater(second["timings"]["disk_tokens"], 0)
            self.assertEqual(token_logprobs(second), token_logprobs(first))

    def test_tenants_and_salts_share_nothing(self):
        keys = Path(self._folder.name) / "keys.toml"
        keys.write_text('[[key]]\nname = "alice"\nkey = "alice-key"\n[[key]]\nname = "bob"\nkey = "bob-long-key"\n')
        keys.chmod(0o600)
        body = {"prompt": STORY, "max_tokens": 2, "temperature": 0, "timings": True}

        def hits(server, key, **more):
            response = server.post(TEXT, {**body, **more}, headers=[("x-api-key", key)])
            self.assertEqual(response.status, 200, response)
            return response.json["usage"]["prompt_cache_hit_tokens"]

        with self.start("--api-keys", keys) as server:
            self.assertEqual(hits(server, "alice-key"), 0)
        with self.start("--api-keys", keys) as server:
            self.assertEqual(hits(server, "bob-long-key"), 0)
            self.assertEqual(hits(server, "alice-key", cache_salt="s"), 0)
            self.assertGreater(hits(server, "alice-key"), 0)
        reader = [sys.executable, fixtures.ROOT / "tools/read_kv_segment.py", self.folder]
        listed = subprocess.run(reader, capture_output=True, check=True, text=True).stdout
        records = [json.loads(line) for line in listed.splitlines()[:-1]]
        at_root = [record["tenant"] for record in records if record["begins"]]
        self.assertEqual(set(at_root), {"alice", "bob"}, "the root as kv_segment.md tells it")

    def test_a_quota_and_its_reload(self):
        keys = Path(self._folder.name) / "keys.toml"

        def write(quota):
            line = f'kv_quota = "{quota}"\n' if quota else ""
            keys.write_text('[[key]]\nname = "alice"\nkey = "alice-key"\n' + line)
            keys.chmod(0o600)

        def ask(prompt):
            body = {"prompt": prompt, "max_tokens": 2, "temperature": 0}
            response = server.post(TEXT, body, headers=[("x-api-key", "alice-key")])
            self.assertEqual(response.status, 200, response)

        def alice():
            found = [one for one in disk_tier(server)["tenants"] if one["tenant"] == "alice"]
            return found[0] if found else {"bytes": 0, "quota_bytes": 0}

        write("16K")
        with self.start("--api-keys", keys) as server:
            ask(STORY)
            time.sleep(JOURNAL_S)
            self.assertLessEqual(alice()["bytes"], 16 << 10)
            write("10M")
            server.process.send_signal(signal.SIGHUP)
            self.assertTrue(wait_until(lambda: alice()["quota_bytes"] == 10 << 20, 10), alice())
            ask("Lily and Tom " * 40)
            self.assertTrue(wait_until(lambda: alice()["bytes"] > 16 << 10, 10), alice())
            write(None)
            server.process.send_signal(signal.SIGHUP)
            self.assertTrue(wait_until(lambda: alice()["quota_bytes"] == 0, 10), alice())

    def test_encrypted(self):
        key = Path(self._folder.name) / "key"
        key.write_text("5a" * 32)
        key.chmod(0o600)
        flags = ("--kv-encryption-key-file", key)
        with self.start(*flags) as server:
            ids = server.tokenize(STORY, add_special_tokens=True)
            first = self.ask(server)
        with self.start(*flags) as server:
            again = self.ask(server)
            self.assertGreater(again["timings"]["disk_tokens"], 0)
            self.assertEqual(token_logprobs(again), token_logprobs(first))
            self.assertTrue(disk_tier(server)["tenants"][0]["encrypted"])
        self.assertFalse(self.shows(ids), "token ids in the clear")
        for more in ((), ("--kv-read-only",)):
            code, _, error = run_artery("serve", self.model(), "--port", 0, "--kv-dir", self.folder, *more)
            self.assertEqual(code, 3, error)
            self.assertIn("is encrypted: give --kv-encryption-key-file", error)

    def test_promises(self):
        with self.start() as server:
            kept = self.ask(server, cache_ttl="1h")["usage"]["cache"]
            self.assertEqual(kept["ttl"], "1h")
            self.assertAlmostEqual(kept["guaranteed_until"], time.time() + 3600, delta=60)
            self.assertGreater(disk_tier(server)["guaranteed_bytes"], 0)
            self.assertNotIn("cache", self.ask(server)["usage"])
            refused = server.post(TEXT, {"prompt": "a", "cache_ttl": "8d"})
            self.assert_refused(refused, 400, "cache_ttl")

    def test_class_of_all(self):
        with self.start("--kv-ttl", "10m") as server:
            self.ask(server)
            settle(server)
            used = {one["ttl"] for one in disk_tier(server)["classes"] if one["records"]}
            self.assertEqual(used, {"10m"})


class Flags(Folders):
    def test_none_and_the_switch(self):
        for flags in (("--kv-dir", "none"), ("--no-kv-store", "--kv-dir", "auto")):
            with Server(self.model(), *flags) as server:
                self.assertIsNone(disk_tier(server))
                self.assertIsNone(server.status()["kv_store"])
                refused = self.ask(server, cache_ttl="1h")["usage"]["cache"]
                self.assertIsNone(refused["guaranteed_until"], "nothing is there to keep a promise")

    def test_start_log_and_speed(self):
        with self.start("--kv-io", "threads") as server:
            line = next(line for line in server.lines if "kv-store folder=" in line)
            self.assertIn(self.folder, line)
            for part in ("cap=256.00 MiB", "records=0", "tokens=0", 'io="threads"', "health=ok"):
                self.assertIn(part, line)
            self.assertLess(float(line.rsplit("seconds=", 1)[1]), 1)
            self.assertTrue(any("KV store" in line for line in server.lines), "the memory plan")
            self.assertEqual(os.stat(self.folder).st_mode & 0o077, 0, "open to its owner only")

    def test_a_folder_that_is_taken(self):
        with self.start() as first:
            self.ask(first)
            settle(first)
            code, _, error = run_artery("serve", self.model(), "--port", 0, "--kv-dir", self.folder)
            self.assertEqual(code, 1, error)
            self.assertIn(str(first.pid), error)
            self.assertIn("--kv-read-only", error)
            with self.start("--kv-read-only") as second:
                self.assertEqual(disk_tier(second)["health"], "read-only")
                self.assertGreater(self.ask(second)["timings"]["disk_tokens"], 0)
                other = self.ask(second, "Lily and Tom " * 40)
                self.assertEqual(other["usage"]["prompt_cache_hit_tokens"], 0)
                self.assertEqual(disk_tier(second)["written"]["records"], 0)
            self.assertGreater(self.ask(first)["usage"]["prompt_cache_hit_tokens"], 0)

    def test_the_default_folder_that_is_taken_is_a_warning(self):
        cache = self._folder.name
        before = ("env", "-u", "ARTERY_KV_DIR", f"XDG_CACHE_HOME={cache}")
        with Server(self.model(), *ROOM, before=before) as first:
            self.assertEqual(disk_tier(first)["folder"], f"{cache}/artery/kv")
            with Server(self.model(), *ROOM, before=before) as second:
                self.assertIsNone(disk_tier(second))
                self.assertIn("--kv-dir", "\n".join(line for line in second.lines if "KV store" in line))
                self.assertEqual(len(self.ask(second)["choices"]), 1)

    def test_a_default_folder_that_cannot_be_is_a_warning(self):
        before = ("env", "-u", "ARTERY_KV_DIR", "XDG_CACHE_HOME=/proc/nothing")
        with Server(self.model(), *ROOM, before=before) as server:
            self.assertIsNone(disk_tier(server))
            self.assertIn("--kv-dir none", "\n".join(line for line in server.lines if "KV store" in line))

    def test_a_cap_too_small_for_anything(self):
        code, _, error = run_artery("serve", self.model(), "--port", 0, "--kv-dir", self.folder,
                                    "--kv-max-bytes", "4K")
        self.assertIn(code, (2, 4), error)
        self.assertIn("--kv-dir", error)
        self.assertIn("4096", error)
        self.assertIn("raise --kv-max-bytes to", error)
        self.assertFalse(Path(self.folder).exists())

    def test_not_a_store(self):
        place = Path(self._folder.name) / "file"
        place.write_text("a file")
        code, _, error = run_artery("serve", self.model(), "--port", 0, "--kv-dir", place)
        self.assertIn(code, (1, 3), error)
        self.assertIn("--kv-dir", error)

    def test_a_store_of_a_later_version(self):
        with self.start():
            pass
        path = Path(self.folder) / "super"
        slots = path.read_bytes()
        path.write_bytes(b"".join(of_version(slots[at : at + 4096], 77) for at in (0, 4096)))
        code, _, error = run_artery("serve", self.model(), "--port", 0, "--kv-dir", self.folder)
        self.assertEqual(code, 3, error)
        for part in ("--kv-dir", self.folder, "77"):
            self.assertIn(part, error)

    def test_wrong_use(self):
        for flags in (
            ("--kv-ttl", "2h"),
            ("--kv-dir", self.folder, "--no-kv-store"),
            ("--kv-dir", self.folder, "--no-enable-prefix-caching"),
            ("--kv-exact", "--swa-replay", 64),
        ):
            code, _, error = run_artery("serve", self.model(), "--port", 0, *flags)
            self.assertEqual(code, 2, error)
            self.assertIn(flags[0] if flags[0] != "--kv-exact" else "--swa-replay", error)
        self.assertFalse(Path(self.folder).exists())


if __name__ == "__main__":
    harness.main("e2e_kv_cache_test")

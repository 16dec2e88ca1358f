"""What people do to the folder of a KV store while a server has it open: move it away and back,
delete it, drop a tenant, stop a verb in the middle.
"""

import json
import os
import shutil
import signal
import subprocess
import time

import fixtures
import harness
from harness import Case, Server, clean_environment, wait_until
from kv_tools import Folder, ask, flushed, ids, tier

SMALL = ("--kv-max-bytes", "64M")


def artery(*words):
    return subprocess.run(
        [harness.artery_bin(), *map(str, words)], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, env=clean_environment(), timeout=120,
    )


class Begun:
    """A verb that runs; wait() gives its exit code and what it said."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [harness.artery_bin(), *map(str, words)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=clean_environment(),
        )

    def wait(self):
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out + err


class FolderGoes(Case):
    def is_sick(self, server, why):
        disk = tier(server, "disk")
        return disk["health"] == "sick" and why in disk["trouble"]

    def test_moved_away_and_back(self):
        prompts = [ids(300, seed, fixtures.M2_VOCAB) for seed in range(4)]
        with Folder() as folder:
            flags = ("--kv-dir", folder.path, *SMALL, "--kv-cache-memory-bytes", "2M", "-c", 512)
            with Server(fixtures.m2(), *flags) as server:
                answers = [ask(server, prompt)[0] for prompt in prompts]
                flushed(server)
                aside = folder.root / "aside"
                folder.path.rename(aside)
                self.assertTrue(wait_until(lambda: self.is_sick(server, "the folder is gone"), 30))
                self.assertRegex(
                    server.get("/metrics").body.decode(),
                    r'artery:kv_store_health\{[^}]*state="sick"[^}]*\} 1',
                )
                read = tier(server, "disk")["read"]["records"]
                for prompt, answer in zip(prompts, answers):
                    self.assertEqual(ask(server, prompt)[0], answer)
                self.assertEqual(tier(server, "disk")["read"]["records"], read)
                self.assertFalse(folder.path.exists())
                # Somebody else's folder in its place stays as it is.
                folder.path.mkdir()
                (folder.path / "lock").write_text("theirs")
                self.assertTrue(wait_until(lambda: self.is_sick(server, "another folder"), 30))
                for prompt, answer in zip(prompts, answers):
                    self.assertEqual(ask(server, prompt)[0], answer)
                self.assertEqual([path.name for path in folder.files()], ["lock"])
                self.assertEqual((folder.path / "lock").read_text(), "theirs")
                shutil.rmtree(folder.path)
                aside.rename(folder.path)
                self.assertTrue(
                    wait_until(lambda: tier(server, "disk")["health"] == "ok", 30), server.log
                )
                self.assertEqual(server.ask("POST", "/reset_prefix_cache").status, 200)
                text, cached, _ = ask(server, prompts[0])
                self.assertEqual(text, answers[0])
                self.assertGreaterEqual(cached, 256)
            with Server(fixtures.m2(), *flags) as server:
                for prompt, answer in zip(prompts, answers):
                    text, cached, _ = ask(server, prompt)
                    self.assertEqual(text, answer)
                    self.assertGreaterEqual(cached, 256)

    def test_deleted(self):
        prompt = ids(300, 1, fixtures.M2_VOCAB)
        with Folder() as folder:
            with Server(fixtures.m2(), "--kv-dir", folder.path, *SMALL) as server:
                answer = ask(server, prompt)[0]
                flushed(server)
                shutil.rmtree(folder.path)
                self.assertTrue(wait_until(lambda: self.is_sick(server, "the folder is gone"), 30))
                self.assertEqual(ask(server, prompt)[0], answer)
                ask(server, ids(300, 2, fixtures.M2_VOCAB))
            self.assertFalse(folder.path.exists())


class Orders(Case):
    def test_a_dropped_tenant_leaves_the_ram_too(self):
        prompt = ids(300, 1, fixtures.M2_VOCAB)
        with Folder() as folder:
            with Server(fixtures.m2(), "--kv-dir", folder.path, *SMALL) as server:
                answer = ask(server, prompt)[0]
                self.assertGreaterEqual(ask(server, prompt)[1], 256)  # from RAM
                flushed(server)
                done = artery("kv", "drop-tenant", folder.path, "--tenant", "", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("the server", json.loads(done.stdout)["done_by"])
                text, cached, _ = ask(server, prompt)
                self.assertEqual((text, cached), (answer, 0))

    def test_a_reader_forgets_with_its_writer(self):
        prompt = ids(300, 1, fixtures.M2_VOCAB)
        with Folder() as folder:
            key = folder.root / "key"
            key.write_text("ab" * 32)
            key.chmod(0o600)
            flags = ("--kv-dir", folder.path, *SMALL, "--kv-encryption-key-file", key)
            with Server(fixtures.m2(), *flags) as writer:
                answer = ask(writer, prompt)[0]
                flushed(writer)
                with Server(fixtures.m2(), *flags, "--kv-read-only") as reader:
                    for _ in range(2):  # from the disk, then from RAM
                        text, cached, _ = ask(reader, prompt)
                        self.assertEqual(text, answer)
                        self.assertGreaterEqual(cached, 256)
                    checked = artery("kv", "verify", folder.path)
                    self.assertEqual(checked.returncode, 0, checked.stdout)
                    self.assertIn("not opened", checked.stdout)
                    self.assertNotIn("clean:", checked.stdout)
                    done = artery("kv", "drop-tenant", folder.path, "--tenant", "")
                    self.assertEqual(done.returncode, 0, done.stderr)

                    def forgotten():
                        return reader.answer_get("/artery/cache")["tiers"][1]["records"] == 0

                    self.assertTrue(wait_until(forgotten, 30))
                    time.sleep(0.1)
                    text, cached, _ = ask(reader, prompt)
                    self.assertEqual((text, cached), (answer, 0))

    def test_a_cancelled_order_is_not_carried_out(self):
        prompt = ids(300, 1, fixtures.M2_VOCAB)
        with Folder() as folder:
            flags = ("--kv-dir", folder.path, *SMALL)
            with Server(fixtures.m2(), *flags) as server:
                ask(server, prompt)
                flushed(server)
                # A server that takes no orders for a while.
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                        verb = Begun("kv", "drop-tenant", folder.path, "--tenant", "")
                        orders = folder.path / "orders"
                        self.assertTrue(wait_until(lambda: list(orders.glob("*.ask")), 60))
                        verb.process.send_signal(number)
                        found, said = verb.wait()
                        self.assertEqual(found, code, said)
                        self.assertIn("the order was withdrawn, nothing was done", said)
                        self.assertEqual(list(orders.iterdir()), [])
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                time.sleep(2.5)
                self.assertEqual(server.ask("POST", "/reset_prefix_cache").status, 200)
                self.assertGreaterEqual(ask(server, prompt)[1], 256)


class Stopped(Case):
    def test_bench_kv_leaves_nothing(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with Folder() as folder:
                folder.path.mkdir()
                verb = Begun("bench", "kv", "--kv-dir", folder.path, "--index-records", 1000,
                             "--open-bytes", 0, "-r", 1000)
                self.assertTrue(wait_until(lambda: list(folder.path.glob("*/store/seg-*")), 100))
                verb.process.send_signal(number)
                found, said = verb.wait()
                self.assertEqual(found, code, said)
                self.assertIn(f"stopped by signal {int(number)}", said)
                self.assertEqual(list(folder.path.iterdir()), [])


class Refused(Case):
    """What cannot be used is said with what to do, and left alone."""

    def serve(self, *flags):
        words = ("serve", fixtures.m2(), "--port", 0, *flags)
        return artery(*words)

    def test_a_secret_that_is_gone(self):
        with Folder() as folder:
            with Server(fixtures.m2(), "--kv-dir", folder.path, *SMALL) as server:
                ask(server, ids(300, 1, fixtures.M2_VOCAB))
                flushed(server)
            (folder.path / "secret").unlink()
            ended = self.serve("--kv-dir", folder.path, *SMALL)
            self.assertEqual(ended.returncode, 3, ended.stderr)
            self.assertIn("put it back from a backup", ended.stderr.lower())
            self.assertFalse((folder.path / "secret").exists())

    def test_no_name(self):
        ended = self.serve("--kv-dir", "")
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("--kv-dir", ended.stderr)
        self.assertIn("is empty", ended.stderr)

    def test_one_way_compared(self):
        ended = artery("eval", fixtures.m2(), "--compare", "exact")
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("'exact' is one way", ended.stderr)

    def test_eval_with_a_key(self):
        with Folder() as folder:
            key = folder.root / "key"
            key.write_text("ab" * 32)
            key.chmod(0o600)
            line = folder.root / "line"
            line.write_text(json.dumps({"id": "a", "tokens": list(range(100, 180))}) + "\n")
            words = ("eval", fixtures.m2(), line, "--cache", folder.path)
            for expected in ("0 tokens came", "64 tokens came"):
                ended = artery(*words, "--kv-encryption-key-file", key)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(expected, ended.stderr)
            ended = artery(*words)
            self.assertEqual(ended.returncode, 3, ended.stderr)
            self.assertIn("give --kv-encryption-key-file", ended.stderr)


if __name__ == "__main__":
    harness.main("e2e_kv_folder_test")

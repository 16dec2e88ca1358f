"""A server whose store lies on a small volume of its own, which fills up, turns read-only, goes
away, or loses its device: every request is answered as without a store. The kernel's own faults, so
it needs root and loop devices; it is skipped, and counted as such, where they are not there.
"""

import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import fixtures
import harness
from harness import Case, Server, wait_until
from kv_tools import NO_CACHE, Folder, ask, flushed, ids, tier

MIB = 1 << 20
LINES_MAX = 80  # of a server's log in any trouble


def command(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout.strip()


class Volume:
    """An ext4 file system in a file, mounted at `path`."""

    def __init__(self, root, name, mib):
        self.image, self.path = root / f"{name}.img", root / name
        with open(self.image, "wb") as file:
            file.truncate(mib * MIB)
        self.path.mkdir()
        command("mkfs.ext4", "-q", "-m", "0", self.image)
        self.mount()

    def mount(self):
        command("mount", "-o", "loop", self.image, self.path)

    def unmount(self, *flags):
        command("umount", *flags, self.path)

    def free(self):
        space = os.statvfs(self.path)
        return space.f_bavail * space.f_frsize

    def fill(self, leave=0):
        """Other people's bytes, down to `leave` free ones."""
        with open(self.path / "ballast", "ab") as file:
            try:
                while self.free() > leave:
                    file.write(bytes(min(MIB, max(self.free() - leave, 1))))
                    file.flush()
            except OSError:
                pass  # full


class LoopVolume(Case):
    def setUp(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("loop devices need root")
        self.folder = Folder("artery-loop-")
        self.addCleanup(self.folder.__exit__)
        self.volumes = []
        self.addCleanup(self.unmount_all)
        self.volume = self.make("volume", 64)
        self.model = fixtures.m2()
        self.prompts = [ids(1600, seed, fixtures.M2_VOCAB) for seed in range(8)]
        with Server(self.model, "--kv-cache-dtype", "f32", *NO_CACHE) as server:
            self.cold = [ask(server, prompt, 8)[0] for prompt in self.prompts]

    def make(self, name, mib):
        try:
            volume = Volume(self.folder.root, name, mib)
        except (OSError, FileNotFoundError) as error:
            raise unittest.SkipTest(f"no loop-mounted volume: {error}")
        self.volumes.append(volume)
        return volume

    def unmount_all(self):
        for volume in self.volumes:
            subprocess.run(["umount", "-l", str(volume.path)], capture_output=True)

    def serve(self, *flags, cap="1G"):
        return Server(
            self.model, "--kv-cache-dtype", "f32", "--kv-dir", self.volume.path / "store",
            "--kv-max-bytes", cap, "--kv-free-floor", "1M", "--kv-cache-memory-bytes", "6M", "-c",
            "2048", *flags,
        )

    def ask_all(self, server, which=None):
        """Every answer as cold; how many tokens were cached."""
        cached = 0
        for at in which or range(len(self.prompts)):
            text, hit, _ = ask(server, self.prompts[at], 8)
            self.assertEqual(text, self.cold[at], f"prompt {at}")
            cached += hit
        self.assertLess(len(server.lines), LINES_MAX, server.log)
        return cached

    def check_again(self):
        """On a sound volume everything works, after the trouble."""
        with self.serve(cap="40M") as server:
            self.ask_all(server, [0, 1])
            flushed(server)
        with self.serve(cap="40M") as server:
            self.assertGreater(self.ask_all(server, [0, 1]), 2000)
            self.assertGreater(tier(server, "disk")["hit_tokens"], 2000)

    def is_gone(self, server):
        disk = tier(server, "disk")
        return disk["health"] == "sick" and "the folder is gone" in disk["trouble"]

    def test_has_no_room_at_all(self):
        self.volume.fill(leave=2 * MIB)
        ended = subprocess.run(
            [harness.artery_bin(), "serve", self.model, "--port", "0", "--kv-dir",
             self.volume.path / "store"],
            capture_output=True, text=True, timeout=120, env=harness.clean_environment(),
        )
        self.assertEqual(ended.returncode, 4, ended.stderr)
        self.assertIn("no room on its disk", ended.stderr)

    def test_fills_up(self):
        with self.serve() as server:
            self.volume.fill(leave=3 * MIB)
            self.ask_all(server)
            self.ask_all(server)
            self.volume.fill()
            self.ask_all(server)
            disk = tier(server, "disk")
            self.assertEqual(disk["records"], 0, disk)  # nothing fits
            (self.volume.path / "ballast").unlink()
            self.ask_all(server)
        self.check_again()

    def test_is_full_at_the_start(self):
        with self.serve() as server:
            self.ask_all(server, [0, 1])
            flushed(server)
        self.volume.fill()
        with self.serve() as server:
            self.assertGreater(self.ask_all(server, [0, 1]), 2000)
            self.ask_all(server)
        (self.volume.path / "ballast").unlink()
        self.check_again()

    def test_turns_read_only(self):
        with self.serve() as server:
            self.ask_all(server, [0, 1])
            flushed(server)
            # As the kernel does it on an error of the disk: also for files that are open.
            try:
                command("mount", "-o", "remount,abort", self.volume.path)
            except OSError as error:
                self.skipTest(f"no abort: {error}")
            self.ask_all(server)
            self.ask_all(server)
            self.assertIn(tier(server, "disk")["health"], ("read-only", "sick"))
        self.volume.unmount("-l")
        self.remount_repaired()
        self.check_again()

    def remount_repaired(self):
        subprocess.run(["e2fsck", "-fy", str(self.volume.image)], capture_output=True)
        self.volume.mount()

    def test_is_unmounted_and_replaced(self):
        with self.serve() as server:
            self.ask_all(server, [0, 1])
            flushed(server)
            self.volume.unmount("-l")
            self.ask_all(server)
            self.assertTrue(wait_until(lambda: self.is_gone(server), 30), tier(server, "disk"))
            other = self.make("other", 64)
            command("mount", "--bind", other.path, self.volume.path)
            self.ask_all(server)
            self.ask_all(server)
        subprocess.run(["umount", "-l", str(self.volume.path)], capture_output=True)
        time.sleep(0.5)
        self.volume.mount()
        self.check_again()

    def test_loses_its_device(self):
        with self.serve() as server:
            self.ask_all(server)
            flushed(server)
            # The device ends early from now on: reads beyond give errors or zeros.
            os.truncate(self.volume.image, 6 * MIB)
            Path("/proc/sys/vm/drop_caches").write_text("3")
            self.ask_all(server)
            self.ask_all(server)

    def test_store_is_deleted_under_it(self):
        with self.serve() as server:
            self.ask_all(server)
            flushed(server)
            for path in (self.volume.path / "store").iterdir():
                path.unlink()
            self.ask_all(server)
            self.assertTrue(wait_until(lambda: self.is_gone(server), 30), tier(server, "disk"))
            self.ask_all(server)
        self.check_again()


if __name__ == "__main__":
    harness.main("kv_loop_volume_test")

"""The memory plan (docs/memory.md): what `doctor` and `serve` say before weights are read, field
report FR-F4, and the plan against what real models take when all of it is used.
"""

import contextlib
import json
import os
import re
import threading
import time
import unittest
from pathlib import Path

import fixtures
import harness
from harness import Case, Server, run_artery

MIB = 1 << 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
WORDS = "the quick brown fox jumps over a lazy dog while 1 2 3 4 crows watch".split()


def doctor(model, *flags):
    code, out, error = run_artery("doctor", model, "--json", "--no-speed", *flags)
    assert code == 0, error
    return json.loads(out)


def planned(server):
    """Bytes of the line "memory plan: 1.52 GiB when all of it is used, ..."."""
    log = "\n".join(server.lines)
    found = re.search(r"memory plan: ([0-9.]+) (\w+) when", log)
    assert found, log
    return float(found.group(1)) * UNITS[found.group(2)]


@contextlib.contextmanager
def memory_limit(limit):
    """A cgroup below our own; yields its folder and the command that starts a program in it."""
    parent = version = None
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            parent, version = Path("/sys/fs/cgroup/memory" + path), 1
        elif not controllers and parent is None:
            parent, version = Path("/sys/fs/cgroup" + path), 2
    if parent is None:
        raise unittest.SkipTest("no cgroups here")
    group = parent / f"artery-e2e-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise unittest.SkipTest(f"no cgroup can be made: {error}")
    try:
        try:
            name = "memory.limit_in_bytes" if version == 1 else "memory.max"
            (group / name).write_text(str(limit))
        except OSError as error:
            raise unittest.SkipTest(f"no memory limit can be set: {error}")
        yield group, ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    finally:
        group.rmdir()


def oom_kills(group):
    for name in ("memory.events", "memory.oom_control"):
        if (group / name).exists():
            found = re.search(r"oom_kill (\d+)", (group / name).read_text())
            return int(found.group(1)) if found else 0
    raise AssertionError("this cgroup does not count kills")


class Peak:
    """Largest anonymous memory of a process, watched from a thread."""

    def __init__(self, pid):
        self.bytes = 0
        self._path = f"/proc/{pid}/status"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.is_set():
            self.look()
            self._stop.wait(0.005)

    def look(self):
        try:
            text = Path(self._path).read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        kib = [int(n) for n in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+)", text, re.MULTILINE)]
        self.bytes = max(self.bytes, sum(kib) * 1024)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.look()


class BeforeLoading(Case):
    def test_f4_kv_bytes_per_token(self):
        for dtype, expected in (("f16", 640), ("f32", 1280)):
            plan = doctor(fixtures.m1(), "--kv-cache-dtype", dtype)
            self.assertEqual(plan["kv_bytes_per_token"], expected)

    def test_doctor_and_serve_agree(self):
        flags = ("-c", 2048, "--max-num-seqs", 4, "--max-num-batched-tokens", 64)
        plan = doctor(fixtures.m2(), *flags)["plan"]
        self.assertEqual(plan["context"], 2048)
        self.assertEqual(plan["kv_pool_bytes"], 4 * 2048 * plan["kv_bytes_per_token"])
        with Server(fixtures.m2(), *flags) as server:
            # The program itself differs: a server has more threads.
            self.assertAlmostEqual(planned(server), plan["total_bytes"], delta=8 * MIB)
            log = "\n".join(server.lines)
        kinds = [each["type"] for each in plan["weights_by_type"]]
        self.assertEqual(kinds, ["F16", "F32"])
        for part in ("weights", "KV pool", "context 2048 of 32768; ", "logits", "64 rows"):
            self.assertIn(part, log)

    def test_larger_steps_take_more(self):
        small, large = (
            doctor(fixtures.m2(), "--max-num-seqs", n, "--max-num-batched-tokens", 4 * n)["plan"]
            for n in (4, 256)
        )
        self.assertGreater(large["activation_bytes"], small["activation_bytes"])
        rows = 256 + 64  # prompts may ask for 64 rows of logits a step
        vocab_bytes = 2 * 4 * fixtures.M2_VOCAB
        self.assertAlmostEqual(large["logit_bytes"] / (rows * vocab_bytes), 1, delta=0.05)

    def test_f4_more_than_the_machine_has(self):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        per_token = doctor(fixtures.m1())["kv_bytes_per_token"]
        context = 1 << 28
        if context * per_token < total:
            self.skipTest("this machine would do it")
        model = fixtures.m1_with(
            "m1-long.gguf", llama__context_length=fixtures.gguf_file.u32(context)
        )
        code, _, error = run_artery("serve", model, "--port", 0, "-c", context)
        self.assertEqual(code, 4, error)
        last = error.strip().splitlines()[-1]
        self.assertIn(f"a context of {context} tokens needs", last)
        most = int(re.search(r"set --max-model-len (\d+) or lower", last).group(1))
        plan = doctor(model)["plan"]
        self.assertAlmostEqual(plan["context"] / most, 1, delta=0.1)
        self.assertEqual(doctor(model, "-c", context)["fits"], False)

    def test_f4_in_a_container(self):
        model = fixtures.smollm2()
        small = ("--max-num-seqs", 4, "--max-num-batched-tokens", 64)
        with memory_limit(512 * MIB) as (group, before):
            with Server(model, *small, before=before) as server:
                log = "\n".join(server.lines)
                self.assertLess(planned(server), 512 * MIB)
                server.complete(" ".join(WORDS * 30), max_tokens=8)
            context = int(re.search(r"context (\d+) of 8192", log).group(1))
            # Without a flag what fits is taken; asked for, it is refused with that number.
            with self.assertRaises(AssertionError) as refused:
                Server(model, *small, "--kv-cache-dtype", "f32", "-c", 8192, before=before)
            message = str(refused.exception)
            self.assertRegex(message, r"set --max-model-len \d+ or lower")
            self.assertEqual(oom_kills(group), 0)
        self.assertGreater(context, 1024)


class RealLoads(Case):
    """Anonymous memory at its highest, with the pool full, against the plan: within 5 %."""

    def measure(self, model, context, *flags):
        """Prompts of the whole context until the pool has no free page, logits of a step's rows.
        Steps are small: a step stays below 200 ms, so a busy machine never uses large ones."""
        flags = ("-c", context, "--max-num-seqs", 4, "--max-num-batched-tokens", 16, *flags)
        with Server(model, *flags, ready=False) as server, Peak(server.pid) as peak:
            assert harness.wait_until(server._is_ready, harness.HANG_S)
            began = time.monotonic()
            for turn in range(24):
                words = WORDS[turn % len(WORDS) :] + [str(turn)]
                text = " ".join(words * context)
                ids = server.tokenize(text)[: context - 4]
                server.complete(ids, max_tokens=4, temperature=0)
                status = server.status()["kv"] if "kv" in server.status() else server.status()
                if status["pages_in_use"] + status["pages_cached"] >= 0.97 * status["pages_total"]:
                    break
            else:
                self.fail(f"the pool did not fill: {status}")
            # Saved windows: of prompts as long as a window, as many as there is room for.
            spare = status.get("window_pages_total", 0) - status.get("window_pages_in_use", 0)
            turn = 0
            while spare > 0 and status["window_pages_saved"] < 0.9 * spare and turn < 24:
                text = " ".join(([str(turn)] + WORDS[turn % len(WORDS) :]) * context)
                server.complete(server.tokenize(text)[:500], max_tokens=4, temperature=0)
                status = server.status()
                turn += 1
            # Four at once, and logits of 64 rows of a prompt.
            ids = server.tokenize(" ".join(WORDS * 8))[:80]
            jobs = [lambda n=n: server.complete(ids, max_tokens=4, seed=n) for n in range(4)]
            jobs.append(lambda: server.complete(ids, max_tokens=1, echo=True, logprobs=1))
            harness.at_once(jobs)
            plan = planned(server)
            seconds = time.monotonic() - began
        share = peak.bytes / plan
        print(
            f"    {Path(model).name}: {peak.bytes / MIB:.1f} MiB at most, {plan / MIB:.1f} planned "
            f"({100 * share - 100:+.1f} %), {seconds:.0f} s"
        )
        return share

    def check(self, model, context, *flags):
        share = self.measure(model, context, *flags)
        self.assertLess(share, 1.05, "more than planned")
        self.assertGreater(share, 0.95, "planned too much")

    def test_smollm2(self):
        self.check(fixtures.smollm2(), 1024)

    def test_qwen_1_5b(self):
        model = fixtures.MODELS / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        fixtures.need(model, "scripts/fetch-model qwen2.5-coder-1.5b")
        self.check(model, 256)

    def test_gemma3_270m(self):
        model = fixtures.MODELS / "gemma-3-270m-q4_k_m.gguf"
        fixtures.need(model, "scripts/fetch-model gemma3-270m")
        self.check(model, 1024)


if __name__ == "__main__":
    harness.main("e2e_memory_plan_test")

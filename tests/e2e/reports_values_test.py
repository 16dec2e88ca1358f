"""Field reports with values to the letter (FR-A2, D3, D4, D5), those of the machine (FR-K1, K3), and
model files that change while they are served.

Expected values come from ../shared/golden/reports/reports.json; its M1 values assume F32 keys and
values.
"""

import contextlib
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import fixtures
import harness
from harness import Case, Server, at_once, run_artery

F32_KV = ("--kv-cache-dtype", "f32")
STORY = "Once upon a time"


REPORTS = fixtures.field_reports()


def setUpModule():
    fixtures.need_reports(REPORTS)


class LongRuns(harness.SharedServer):
    """FR-A2"""

    model = staticmethod(fixtures.m2)

    def test_a2_long_runs_of_one_character(self):
        pid = self.server.pid
        for name, expect in REPORTS["FR-A2"]["expect"].items():
            part, count = name.rsplit("*", 1)
            text = part * int(count)
            ids = self.server.tokenize(text)
            self.assertEqual(len(ids), expect["count"], name)
            self.assertEqual(ids[0], expect.get("first", expect.get("all")), name)
            self.assertEqual(ids[-1], expect.get("last", expect.get("all")), name)
            if "all" in expect:
                self.assertEqual(set(ids), {expect["all"]}, name)
            messages = [{"role": "user", "content": "run it"}, {"role": "user", "content": text}]
            answer = self.server.post(
                "/v1/chat/completions", {"messages": messages, "max_tokens": 1}
            )
            if answer.status != 200:
                self.assertEqual(answer.status, 400, answer)
                self.assertEqual(answer.json["error"]["code"], "context_length_exceeded")
            self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(self.server.pid, pid)
        self.assertIsNone(self.server.process.poll())


class Sampling(harness.SharedServer):
    model = staticmethod(fixtures.m1)
    flags = F32_KV

    def text(self, **body):
        whole, streamed = self.server.both("/v1/completions", body)
        text = whole["choices"][0]["text"]
        self.assertEqual(streamed["choices"][0]["text"], text)
        return text

    def refused(self, **body):
        answer = self.server.post("/v1/completions", {"prompt": STORY, "max_tokens": 1, **body})
        self.assertEqual(answer.status, 400, answer)
        return answer.json["error"]["param"]

    def test_d3_penalties(self):
        report = REPORTS["FR-D3"]
        expect = report["expect"]
        for variant in report["input"]["variants"]:
            key = " ".join(f"{k} {v}" for k, v in variant.items()) or "{}"
            self.assertEqual(self.text(**report["input"]["body_template"], **variant), expect[key])
        for field in ("presence_penalty", "frequency_penalty"):
            self.assertEqual(self.refused(**{field: 3.0}), field)

    def test_d5_logit_bias(self):
        report = REPORTS["FR-D5"]
        body = {**report["input"]["body_template"], "logit_bias": None}
        for token in report["input"]["ids"]:
            body["logit_bias"] = {str(token): -100}
            text = self.text(**body)
            self.assertEqual(text, report["expect"][str(token)])
            self.assertNotIn(token, self.server.tokenize(text)[1:])
            several = self.server.answer("/v1/completions", {**body, "n": 2})
            self.assertEqual([c["text"] for c in several["choices"]], [text, text])
        piece = self.server.answer("/detokenize", {"tokens": [403, 317]})["prompt"]
        body["logit_bias"] = {"317": 100}
        alone = self.server.answer("/detokenize", {"tokens": [403]})["prompt"]
        repeated = piece.removeprefix(alone)
        self.assertEqual(self.text(**{**body, "max_tokens": 6}), repeated * 6)
        for bias in ({"512": 1}, {"-1": 1}, {"x": 1}, {"1.5": 1}):
            self.assertEqual(self.refused(logit_bias=bias).split(".")[0], "logit_bias", bias)


class Seeds(Case):
    """FR-D4"""

    def check_one_run(self):
        body = REPORTS["FR-D4"]["input"]["body"]

        def texts(server, **more):
            answer = server.answer("/v1/completions", {**body, **more})
            return tuple(choice["text"] for choice in answer["choices"])

        with Server(fixtures.m1(), *F32_KV) as server:
            alone = {texts(server) for _ in range(5)}
            self.assertEqual(len(alone), 1)
            busy = at_once([lambda i=i: texts(server, seed=42 if i == 0 else i) for i in range(8)])
            self.assertEqual({busy[0]}, alone)
            pair = {texts(server, n=2) for _ in range(3)}
            self.assertEqual(len(pair), 1)
            self.assertEqual(next(iter(pair))[0:1], next(iter(alone)))
            self.assertGreaterEqual(len({texts(server, seed=i) for i in range(5)}), 4)
            self.assertGreater(len({texts(server, seed=None) for _ in range(5)}), 1)
        return alone, pair

    def test_d4_seed(self):
        self.assertEqual(self.check_one_run(), self.check_one_run(), "after a restart")


def own_cpu_group():
    """Folder and version of this process's own CPU cgroup."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return Path("/sys/fs/cgroup/cpu" + path), 1
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return Path("/sys/fs/cgroup" + line[3:]), 2
    raise unittest.SkipTest("no cgroups here")


@contextlib.contextmanager
def cpu_quota(quota_us, period_us=100000):
    """A cgroup below our own; yields the command that starts a program in it."""
    parent, version = own_cpu_group()
    group = parent / f"artery-e2e-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise unittest.SkipTest(f"no cgroup can be made: {error}")
    try:
        try:
            if version == 1:
                (group / "cpu.cfs_period_us").write_text(str(period_us))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        except OSError as error:
            raise unittest.SkipTest(f"no CPU quota can be set: {error}")
        yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    finally:
        group.rmdir()


class CpuLimits(Case):
    """FR-K1"""

    def started(self, *flags, before=()):
        with Server(fixtures.m1(), *flags, before=before) as server:
            self.assertTrue(server.complete(STORY, max_tokens=2)["choices"])
            return server.log

    def test_k1_affinity(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.assertIn(f"threads={len(cpus)} ", self.started() + " ")
        one = ("taskset", "-c", str(cpus[0]))
        if shutil.which("taskset") is None:
            self.skipTest("no taskset")
        self.assertIn("threads=1 ", self.started(before=one))

    def test_k1_quota(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one CPU only")
        with cpu_quota(150000) as inside:
            self.assertIn("threads=1 ", self.started(before=inside))
            log = self.started("--threads", "2", before=inside)
            self.assertIn("threads=2 ", log)
            self.assertRegex(log, r"--threads 2 exceeds the cgroup's CPU quota of 1\.50")
        with cpu_quota(200000) as inside:
            self.assertIn("threads=2 ", self.started(before=inside))


class Processors(Case):
    """FR-K3, without other processors at hand: each instruction set on its own."""

    def test_k3_each_instruction_set(self):
        self.assertEqual(run_artery("--version")[0], 0)
        code, doctor, _ = run_artery("doctor")
        self.assertEqual(code, 0, doctor)
        texts = set()
        for isa in ("scalar", "avx2", "avx512"):
            code, _, error = run_artery(
                "run", fixtures.m1(), "--isa", isa, "--raw", "-p", STORY, "--temp", "0",
                "--max-tokens", "24",
            )
            if code != 0:
                self.assertEqual(code, 2, error)
                self.assertEqual(len(error.strip().splitlines()), 1, error)
                self.assertIn(isa, error)
                continue
            with Server(fixtures.m1(), "--isa", isa) as server:
                answer = server.complete(STORY, temperature=0, max_tokens=24)
                texts.add(answer["choices"][0]["text"])
                self.assertIn(f"isa={isa} ", server.log)
        self.assertEqual(len(texts), 1, texts)


class ChangingFiles(Case):
    """The weights are in memory once and the file is not needed any more."""

    def serve_copy(self, folder, model, *flags):
        path = Path(folder) / "model.gguf"
        shutil.copyfile(model, path)
        return path, Server(path, *flags)

    def test_cut_replaced_and_removed_while_served(self):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 24}
        with tempfile.TemporaryDirectory() as folder:
            path, server = self.serve_copy(folder, fixtures.m1(), *F32_KV)
            with server:
                known = server.answer("/v1/completions", body)["choices"]
                maps = Path(f"/proc/{server.pid}/maps").read_text()
                self.assertNotIn(str(path), maps, "the file is still mapped")
                with open(path, "r+b") as file:
                    file.truncate(100)
                self.assertEqual(server.answer("/v1/completions", body)["choices"], known)
                with open(path, "r+b") as file:
                    file.write(os.urandom(2_000_000))
                self.assertEqual(server.answer("/v1/completions", body)["choices"], known)
                path.unlink()
                self.assertEqual(server.answer("/v1/completions", body)["choices"], known)

    def test_cut_before_the_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            shutil.copyfile(fixtures.m1(), path)
            with open(path, "r+b") as file:
                file.truncate(path.stat().st_size // 2)
            code, _, error = run_artery("run", path, "--raw", "-p", "x", "--max-tokens", "1")
            self.assertEqual(code, 3, error)
            self.assertIn("model.gguf", error)

    def test_one_copy_in_memory(self):
        model = fixtures.MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        fixtures.need(model, "scripts/fetch-model qwen2.5-coder-0.5b")
        with Server(model, "-c", "512", "--kv-cache-memory-bytes", "16M") as server:
            resident = server.resident_bytes()
        self.assertLess(resident, 1.6 * model.stat().st_size)

    def test_second_start_knows_the_digest(self):
        model = fixtures.smollm2()
        known = None
        with tempfile.TemporaryDirectory() as cache:
            before = ("env", f"XDG_CACHE_HOME={cache}")
            for start in range(2):
                with Server(model, "--log-level", "debug", before=before) as server:
                    answer = server.complete("x", temperature=0, max_tokens=4)
                    log = "\n".join(server.lines)
                self.assertEqual("hashed" in log, start == 0, log)
                self.assertIn("start phases, ms: open=", log)
                found = (answer["system_fingerprint"], answer["choices"][0]["text"])
                self.assertEqual(found, known or found)
                known = found


if __name__ == "__main__":
    harness.main("e2e_reports_values_test")

"""`artery bench serve` and `bench model` as a user runs them, against a real server and model."""

import json
import signal
import subprocess
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path

import fixtures
import harness
from harness import Case, Server, artery_bin, run_artery

VOID = {"meta"}


class Balance(HTMLParser):
    """Tags in order, and no attribute that fetches anything."""

    def __init__(self):
        super().__init__()
        self.open, self.problems, self.seen = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.problems += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}>")


def bench(server, *flags):
    return run_artery("bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}", *flags)


SMALL = ("--random-input-len", 40, "--random-output-len", 16, "--ignore-eos")


class BenchServe(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = fixtures.m1()

    def test_random_counts_every_token_and_writes_all_reports(self):
        with Server(self.model) as server, tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "load.html"
            code, out, err = bench(server, *SMALL, "--num-prompts", 24, "--max-concurrency", 8,
                                   "--goodput", "ttft:60000", "tpot:60000", "--save-detailed",
                                   "--result-dir", folder, "--result-filename", "r.json", "--html", page)
            self.assertEqual(code, 0, err)
            self.assertIn("Successful requests:                     24", out)
            result = json.loads((Path(folder) / "r.json").read_text())
            self.assertEqual(result["completed"], 24)
            self.assertEqual(result["failed"], 0)
            self.assertEqual(result["total_input_tokens"], 24 * 40)
            self.assertEqual(result["total_output_tokens"], 24 * 16)
            self.assertEqual(result["input_lens"], [40] * 24)
            self.assertLessEqual(result["max_concurrent_requests"], 8)
            self.assertGreater(result["request_throughput"], 0)
            self.assertAlmostEqual(result["request_goodput"], result["request_throughput"])
            self.assertAlmostEqual(result["output_throughput"] * result["duration"], 24 * 16, places=3)
            self.assertGreater(result["mean_ttft_ms"], 0)
            self.assertLessEqual(result["mean_ttft_ms"], result["mean_e2el_ms"])
            balance = Balance()
            balance.feed(page.read_text())
            self.assertEqual((balance.problems, balance.open), ([], []))
            self.assertLessEqual({"svg", "polyline", "circle", "table"}, balance.seen)

    def test_chat_rate_and_the_models_own_tokenizer(self):
        with Server(self.model, "--chat-template", "chatml") as server:
            begin = time.monotonic()
            code, out, err = bench(server, *SMALL, "--endpoint", "/v1/chat/completions", "--tokenizer",
                                   self.model, "--num-prompts", 10, "--request-rate", 5, "--json")
            self.assertEqual(code, 0, err)
            result = json.loads(out)
            self.assertEqual(result["completed"], 10)
            self.assertGreater(result["total_input_tokens"], 400)  # the template adds to them
            self.assertGreater(time.monotonic() - begin, 1.9)

    def test_a_trace_shares_its_prefixes(self):
        rows = [{"timestamp": 100 * i, "input_length": 200, "output_length": 4,
                 "hash_ids": [0]} for i in range(6)]
        with Server(self.model) as server, tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.jsonl"
            trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
            flags = ("--dataset-name", "trace", "--dataset-path", trace, "--ignore-eos", "--json")
            code, out, err = bench(server, *flags, "--max-concurrency", 1)
            self.assertEqual(code, 0, err)
            result = json.loads(out)
            self.assertEqual(result["completed"], 6)
            self.assertEqual(result["request_rate"], "dataset")
            self.assertGreaterEqual(result["total_cached_tokens"], 5 * 176)
            trace.write_text("{\n")
            code, _, err = bench(server, *flags)
            self.assertEqual(code, 3)
            self.assertIn("line 1", err)

    def test_what_fails_is_counted_and_said(self):
        with Server(self.model, "--max-model-len", 64) as server:
            code, out, err = bench(server, "--random-input-len", 100, "--num-prompts", 3, "--json")
            self.assertEqual(code, 1, err)
            self.assertEqual(json.loads(out)["error_kinds"]["http 400"]["count"], 3)
            code, _, err = bench(server, "--goodput", "itl:3")
            self.assertEqual(code, 2)
            self.assertIn("--goodput", err)
        code, _, err = run_artery("bench", "serve", "--base-url", "http://127.0.0.1:1")
        self.assertEqual(code, 1)
        self.assertIn("cannot connect", err)

    def test_interrupted_it_prints_what_it_has(self):
        with Server(self.model) as server:
            process = subprocess.Popen(
                [artery_bin(), "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}",
                 "--random-input-len", "20", "--random-output-len", "8", "--num-prompts", "5000",
                 "--request-rate", "20", "--json"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            time.sleep(6)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130)
            result = json.loads(out)
            self.assertGreater(result["completed"], 0)
            self.assertGreater(result["unfinished"], 0)

    def test_a_thousand_streams_at_once(self):
        with Server(self.model, "--max-num-seqs", 256, "--max-queued-requests", 2000) as server:
            code, out, err = bench(server, "--random-input-len", 8, "--random-output-len", 4,
                                   "--ignore-eos", "--num-prompts", 1000, "--json")
            self.assertEqual(code, 0, err)
            result = json.loads(out)
            self.assertEqual(result["completed"], 1000, result["error_kinds"])
            self.assertGreater(result["max_concurrent_requests"], 500)


class BenchOthers(Case):
    def test_model_tests_and_their_limits(self):
        code, out, err = run_artery("bench", "model", fixtures.m1(), "-p", 64, "-n", 8, "-r", 2, "--batch",
                                    "1,4", "-d", "0,32", "--pg", "16,4", "--json")
        self.assertEqual(code, 0, err)
        report = json.loads(out)
        self.assertEqual([row["name"] for row in report["rows"]],
                         [name + depth for depth in ("", " @ 32") for name in
                          ("prefill 64", "decode 8 x 1", "decode 8 x 4",
                           "prefill 16 + decode 4 x 1", "prefill 16 + decode 4 x 4")])
        for row in report["rows"]:
            self.assertGreater(row["tokens_per_s"]["min"], 0)
            self.assertGreater(row["read_gb_s"]["min"], 0)

    def test_tokenizer(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("Once upon a time there was a little girl. " * 200)
            file.flush()
            code, out, err = run_artery("bench", "tokenizer", fixtures.m1(), "--file", file.name, "--json")
        self.assertEqual(code, 0, err)
        self.assertGreater(json.loads(out)["median"], 0)


if __name__ == "__main__":
    harness.main("e2e_bench_serve_test")

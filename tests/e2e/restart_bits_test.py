"""An answer's bits survive a restart with other kernels, threads, step sizes and streaming."""

import json
import unittest

import fixtures
import harness
from harness import Case, Server, at_once
from wire import merge

TEXT = "/v1/completions"
LONG_PROMPT = "One day, a dog and a cat sat in the park. They saw a big red ball. " * 12


def cpu_flags():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return set(next(line for line in file if line.startswith("flags")).split())
    except (OSError, StopIteration):
        return set()


def instruction_sets():
    flags = cpu_flags()
    found = ["scalar"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        found.append("avx512")
    return found


def bodies(max_tokens, prompts):
    """Greedy, seeded, truncated, penalised and long ones."""
    common = {"max_tokens": max_tokens, "logprobs": 3}
    drawn = {**common, "seed": 11, "temperature": 1.0}
    penalties = {"presence_penalty": 0.7, "frequency_penalty": 0.3, "repetition_penalty": 1.1}
    return [
        {"prompt": prompts[0], **common, "temperature": 0},
        {"prompt": prompts[1], **drawn, "n": 2},
        {"prompt": prompts[2], **drawn, "top_p": 0.9, "top_k": 30, "min_p": 0.01, **penalties},
        {"prompt": prompts[3], **common, "temperature": 0},
        {"prompt": prompts[3], **drawn, "seed": 2**64 - 1},
    ]


def bits(answer):
    """What must not change, as text: JSON prints a float32 so that its bits can be had back."""
    return json.dumps([answer["system_fingerprint"], answer["choices"]], sort_keys=True)


class RestartBits(Case):
    def ask_all(self, model, flags, asked):
        """Each request alone, all at once, from the cache, and streamed; the one set of bits."""
        with Server(model, *flags) as server:
            alone = [bits(server.answer(TEXT, body)) for body in asked]
            together = at_once([lambda b=b: bits(server.answer(TEXT, b)) for b in asked])
            self.assertEqual(together, alone, flags)
            streamed = [bits(merge(server.stream(TEXT, body))) for body in asked]
            self.assertEqual(streamed, alone, flags)
        return alone

    def check(self, model, settings, asked, base=()):
        first = self.ask_all(model, base, asked)
        self.assertEqual(len(set(first)), len(asked), "the requests have answers of their own")
        for flags in settings:
            with self.subTest(flags=flags):
                self.assertEqual(self.ask_all(model, (*base, *flags), asked), first)

    def test_small_model(self):
        prompts = ["Once upon a time", "The sun", "Lily and Tom", LONG_PROMPT]
        settings = [
            ("--isa", isa, "--threads", threads, "--max-num-batched-tokens", tokens)
            for isa in instruction_sets()
            for threads in (1, 2, 3)
            for tokens in (17, 64, 512)
        ]
        settings += [(), ("--no-enable-prefix-caching",), ("--max-num-seqs", 2)]
        self.check(fixtures.m1(), settings, bodies(32, prompts), ("--kv-cache-dtype", "f32"))
        self.check(fixtures.m1(), settings[::5], bodies(32, prompts))

    def test_large_vocabulary(self):
        prompts = ["Once", "The sun", "日本語", LONG_PROMPT]
        settings = [
            ("--isa", isa, "--threads", 1 + i, "--max-num-batched-tokens", (17, 64, 512)[i])
            for i, isa in enumerate(instruction_sets())
        ]
        self.check(fixtures.m2(), settings, bodies(8, prompts))

    def test_real_model(self):
        prompts = ["Once upon a time", "The capital of France is", "def f(x):", LONG_PROMPT]
        sets = instruction_sets()
        settings = [
            ("--isa", isa, "--threads", 1 + i % 3, "--max-num-batched-tokens", (64, 17, 512)[i % 3])
            # The plain loops are slow on a real model: only in the long run.
            for i, isa in enumerate(sets if harness.LONG else sets[1:])
        ]
        asked = bodies(6, prompts)
        asked = asked if harness.LONG else asked[1:4]
        self.check(fixtures.smollm2(), settings, asked, ("-c", "1024"))

    @unittest.skipIf(len(instruction_sets()) == 3, "this CPU has all of them")
    def test_absent_instructions_are_refused(self):
        missing = "avx512" if "avx2" in instruction_sets() else "avx2"
        code, _, log = harness.run_artery("serve", fixtures.m1(), "--port", 0, "--isa", missing)
        self.assertIn(code, (1, 2), log)
        self.assertIn(missing, log)


if __name__ == "__main__":
    harness.main("e2e_restart_bits_test")

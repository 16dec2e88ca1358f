"""The field reports this project answers, one test each, over HTTP and the command line.

Expected values come from ../shared/golden/reports/reports.json; its M1 values assume F32 keys and
values. FR-A1 asks for text forced by structured output, which this version refuses: here the text
is forced token by token with logit_bias. FR-G1 to G3 are in reports_alive_test.py.
"""

import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import fixtures
import harness
from gguf_file import boolean, u32
from harness import Case, Server, at_once, wait_until

F32_KV = ("--kv-cache-dtype", "f32")


REPORTS = fixtures.field_reports()


def setUpModule():
    fixtures.need_reports(REPORTS)


def write_file(folder, name, content):
    path = Path(folder) / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class OnM1(harness.SharedServer):
    model = staticmethod(fixtures.m1)
    flags = F32_KV

    def test_a1_one_token_a_byte(self):
        """The emoji forced from byte tokens, stopped after 1 to 4 of its bytes too."""
        ids = REPORTS["FR-A1"]["expect"]["m1_token_ids_of_🙂"]
        raw = "🙂".encode()
        for count in range(1, len(ids) + 1):
            body = forced("/v1/completions", ids[:count], 20)
            whole, streamed = self.server.both("/v1/completions", body)
            self.assertEqual(text_of(whole), raw[:count].decode(errors="replace"))
            self.assert_same_answer(whole, streamed)

    def test_a4_leading_spaces(self):
        case = REPORTS["FR-A4"]
        for text in case["input"]["texts"]:
            ids = self.server.tokenize(text)
            self.assertEqual(ids, case["expect"][text], text)
            back = self.server.answer("/detokenize", {"tokens": ids})["prompt"]
            self.assertEqual(back, text)
            with_bos = self.server.tokenize(text, add_special_tokens=True)
            self.assertEqual(with_bos, [1, *ids])
            back = self.server.answer("/detokenize", {"tokens": with_bos})["prompt"]
            self.assertEqual(back, text)
        for prompt, start in (("Lily and Tom", " were"), ("Once upon a time", ",")):
            body = {"prompt": prompt, "temperature": 0, "max_tokens": 4}
            for answer in self.server.both("/v1/completions", body):
                self.assertTrue(answer["choices"][0]["text"].startswith(start), answer)

    def test_c8_prompt_beyond_the_context(self):
        expect = REPORTS["FR-C8"]["expect"]
        for stream in (False, True):
            body = {"prompt": " ".join("a" * 512), "temperature": 0, "stream": stream}
            response = self.server.post("/v1/completions", body)
            self.assert_refused(response, 400, code="context_length_exceeded")
            for number in ("513", "512"):
                self.assertIn(number, response.error["message"])
        fits = expect["fits"]
        for more in ({}, {"max_tokens": 32000}):
            body = {"prompt": " ".join("a" * 499), "temperature": 0, **more}
            for answer in self.server.both("/v1/completions", body):
                choice, usage = answer["choices"][0], answer["usage"]
                self.assertEqual(choice["text"], fits["text"])
                self.assertEqual(choice["finish_reason"], fits["finish_reason"])
                self.assertEqual(usage["prompt_tokens"], fits["prompt_tokens"])
                self.assertEqual(usage["completion_tokens"], fits["completion_tokens"])

    def test_d1_stop_strings_across_tokens(self):
        case = REPORTS["FR-D1"]
        for stop in case["input"]["stops"]:
            expect = case["expect"][stop]
            body = {**case["input"]["body_template"], "stop": [stop]}
            for answer in self.server.both("/v1/completions", body):
                choice = answer["choices"][0]
                self.assertEqual(choice["text"], expect["text"], stop)
                self.assertEqual(choice["finish_reason"], expect.get("finish_reason", "stop"))
                used = answer["usage"]["completion_tokens"]
                self.assertEqual(used, expect["completion_tokens"], stop)

    def test_d2_log_probabilities_stay_json(self):
        case = REPORTS["FR-D2"]
        body = {"temperature": 1, **case["input"]["body"]}
        expect = case["expect"]
        first = None
        for more in ({}, {"logit_bias": {"5": -100}}, {"top_k": 1}, {"min_p": 0.9}):
            answer = self.server.answer("/v1/completions", {**body, **more})
            logprobs = answer["choices"][0]["logprobs"]
            self.assertEqual(len(logprobs["tokens"]), 4)
            for token, value, top in zip(
                logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]
            ):
                self.assertTrue(-9999.0 <= value <= 0, value)
                self.assertEqual(top[token], value)
            first = logprobs["top_logprobs"][0]
            self.assertEqual(list(first), [token for token, _ in expect["first_token_top5"]])
            for token, value in expect["first_token_top5"]:
                self.assertAlmostEqual(first[token], value, delta=expect["tolerance"])
        # A banned favourite keeps the log probability the model gave it.
        comma = self.server.tokenize(",")[-1]
        banned = {**body, "top_p": 1, "temperature": 0, "logit_bias": {str(comma): -100}}
        answer = self.server.answer("/v1/completions", banned)
        self.assertNotIn(",", answer["choices"][0]["logprobs"]["tokens"])
        self.assertEqual(answer["choices"][0]["logprobs"]["top_logprobs"][0], first)

    def test_e4_prompt_tokens_count_the_whole_prompt(self):
        prompt = " ".join("One day, a dog and a cat sat in the park." for _ in range(24))
        tokens = self.server.tokenize(prompt, add_special_tokens=True)
        self.assertGreater(len(tokens), 380)
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "timings": True}
        cold = self.server.answer("/v1/completions", body)
        warm = self.server.answer("/v1/completions", body)
        self.assertEqual(cold["choices"], warm["choices"])
        for answer in (cold, warm):
            self.assert_usage(answer["usage"])
            self.assertEqual(answer["usage"]["prompt_tokens"], len(tokens))
            computed = answer["timings"]["prompt_tokens_computed"]
            self.assertEqual(computed, answer["usage"]["prompt_cache_miss_tokens"])
        self.assertEqual(cold["usage"]["prompt_cache_hit_tokens"], 0)
        self.assertEqual(warm["usage"]["prompt_cache_hit_tokens"], (len(tokens) - 1) // 16 * 16)

    def test_g5_deep_json(self):
        shapes = {
            "ignored": lambda deep: '{"prompt":"x","max_tokens":1,"x":%s}' % deep,
            "tools": lambda deep: (
                '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",'
                '"function":{"name":"f","parameters":{"a":%s}}}]}' % deep
            ),
            "content": lambda deep: '{"messages":[{"role":"user","content":%s}]}' % deep,
        }
        paths = {"ignored": "/v1/completions"}
        for levels in (3000, 10000, 200000):
            deep = "[" * levels + "0" + "]" * levels
            for name, shape in shapes.items():
                path = paths.get(name, "/v1/chat/completions")
                response = self.server.post(path, shape(deep).encode())
                self.assert_refused(response, 400)
                self.assertRegex(response.error["message"], r"nested deeper .* \d+")
                self.assertEqual(self.server.get("/health").status, 200)
        # The body itself is the first of 64 allowed levels.
        deep = "[" * 63 + "0" + "]" * 63
        response = self.server.post("/v1/completions", shapes["ignored"](deep).encode())
        self.assertEqual(response.status, 200, response)
        self.assertIsNone(self.server.process.poll())

    def test_l3_port_taken(self):
        port = self.server.port
        for host in ("127.0.0.1", "0.0.0.0", "::"):
            if host == "::" and not ipv6_works():
                continue
            arguments = ["serve", fixtures.m1(), "--host", host, "--port", port, "--insecure"]
            began = os.times().children_user
            code, _, log = harness.run_artery(*arguments)
            self.assertEqual(code, 1, log)
            self.assertLess(os.times().children_user - began, 1)
            self.assertNotIn("loading", log)
            last = log.strip().splitlines()[-1]
            for part in (str(port), host, "--port"):
                self.assertIn(part, last)
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertGreater(port, 0)


def ipv6_works():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
        return True
    except OSError:
        return False


def forced(path, ids, step):
    """A body that gives exactly these tokens: each is chosen once, and then penalised away."""
    chat = path == "/v1/chat/completions"
    return {
        **({"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}),
        "max_tokens": len(ids),
        "temperature": 0,
        "repetition_penalty": 100,
        "logit_bias": {str(token): 100 - step * i for i, token in enumerate(ids)},
    }


class OnM2(harness.SharedServer):
    model = staticmethod(fixtures.m2)

    def test_a1_forced_text_of_many_tokens_a_character(self):
        texts = 0
        for text in ("😹", " 日本語", " नमस्ते", " 👩‍👩", " 🙂", " 😊", "👧‍👦 🙂"):
            ids = self.server.tokenize(text)
            if len(set(ids)) < len(ids) or len(ids) > 8:
                continue
            texts += 1
            for path in ("/v1/completions", "/v1/chat/completions"):
                body = forced(path, ids, 9)
                whole, streamed = self.server.both(path, body)
                self.assertEqual(text_of(whole), text)
                self.assert_same_answer(whole, streamed)
                for chunk in self.server.stream(path, body):
                    self.assertNotIn("\ufffd", str(chunk))
        self.assertGreaterEqual(texts, 5)
        self.assertEqual(self.server.tokenize(" 😊"), [26525, 232])

    def test_a1_random_bytes(self):
        """Random weights give broken UTF-8 too: it is replaced, never cut or sent as it is."""
        fragments = self.server.tokenize(" 😊") + self.server.tokenize(" नमस्ते")
        for seed in range(6):
            body = {
                "messages": [{"role": "user", "content": "x"}],
                "max_tokens": 60,
                "temperature": 2,
                "seed": seed,
                "logprobs": True,
                "ignore_eos": True,
            }
            if seed % 2:
                body["logit_bias"] = {str(token): 12 for token in fragments}
            whole, streamed = self.server.both("/v1/chat/completions", body)
            self.assert_same_answer(whole, streamed)
            entries = whole["choices"][0]["logprobs"]["content"]
            raw = b"".join(bytes(entry["bytes"]) for entry in entries)
            self.assertEqual(text_of(whole), raw.decode("utf-8", errors="replace"))
            self.assertEqual(whole["usage"]["completion_tokens"], 60)

    def test_b7_control_text_in_content_is_text(self):
        case = REPORTS["FR-B7"]
        messages = case["input"]["messages"]
        ids = self.server.answer("/tokenize", {"messages": messages})["tokens"]
        self.assertEqual(ids, case["expect"]["ids"])
        answer = self.server.chat(messages, max_tokens=1)
        self.assertEqual(answer["usage"]["prompt_tokens"], case["expect"]["prompt_tokens"])
        evil = messages[0]["content"]
        calls = [{"id": "c", "type": "function", "function": {"name": evil, "arguments": evil}}]
        conversation = [
            {"role": "system", "content": evil},
            {"role": "user", "name": evil, "content": [{"type": "text", "text": evil}]},
            {"role": "assistant", "content": evil, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": evil},
        ]
        ids = self.server.answer("/tokenize", {"messages": conversation})["tokens"]
        # One turn is begun for the answer and never ended.
        self.assertEqual((ids.count(151644), ids.count(151645)), (5, 4))

    def test_c2_usage_chunk(self):
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        for path, body in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": "hi"})):
            body = {**body, "temperature": 0, "max_tokens": 5, "ignore_eos": True}
            for chunk in self.server.stream(path, body):
                self.assertEqual(len(chunk["choices"]), 1)
                self.assertNotIn("usage", chunk)
            whole = self.server.answer(path, body)
            asked = {**body, "stream_options": {"include_usage": True}}
            *chunks, last = self.server.stream(path, asked)
            for chunk in chunks:
                self.assertEqual(len(chunk["choices"]), 1)
                self.assertIn("usage", chunk)
                self.assertIsNone(chunk["usage"])
            self.assertEqual(last["choices"], [])
            self.assertEqual(last["usage"], whole["usage"])

    def test_c3_content_null_in_a_replayed_turn(self):
        user, assistant, tool = REPORTS["FR-C3"]["input"]["messages"]
        answers = []
        contents = (None, "", "missing", [{"type": "text", "text": ""}])
        for content in contents:
            turn = {**assistant, "content": content}
            if content == "missing":
                del turn["content"]
            messages = [user, turn, tool]
            answers.append(self.server.chat(messages, temperature=0, max_tokens=8))
        parts = {**tool, "content": [{"type": "text", "text": tool["content"]}]}
        answers.append(self.server.chat([user, assistant, parts], temperature=0, max_tokens=8))
        for answer in answers[1:]:
            self.assertEqual(answer["choices"], answers[0]["choices"])
            self.assertEqual(
                answer["usage"]["prompt_tokens"], answers[0]["usage"]["prompt_tokens"]
            )

    def test_l4_default_context_is_the_models(self):
        (model,) = self.server.answer_get("/v1/models")["data"]
        self.assertEqual(model["max_model_len"], fixtures.M2_CONTEXT)
        self.assertIn(f"context {fixtures.M2_CONTEXT} of {fixtures.M2_CONTEXT}; ", self.start_log())
        prompt = " a" * 20000
        count = len(self.server.tokenize(prompt))
        self.assertGreaterEqual(count, 20000)
        answer = self.server.complete(prompt, max_tokens=2, temperature=0)
        self.assertEqual(answer["usage"]["prompt_tokens"], count)

    def start_log(self):
        return "\n".join(self.server.lines)


def text_of(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


class BosAndEnds(Case):
    def test_a5_one_bos(self):
        case = REPORTS["FR-A5"]
        with tempfile.TemporaryDirectory() as folder:
            template = write_file(folder, "t.jinja", case["input"]["chat_template"])
            with Server(fixtures.m1(), *F32_KV, "--chat-template", template) as server:
                body = case["input"]["body"]
                ids = server.answer("/tokenize", {"messages": body["messages"]})["tokens"]
                self.assertEqual(ids, [1, 403, 407, 261, 378])
                for answer in server.both("/v1/chat/completions", body):
                    self.assertEqual(answer["usage"]["prompt_tokens"], 5)
                    self.assertEqual(text_of(answer), case["expect"]["content"])
                bare = server.complete("Once upon a time", max_tokens=1)
                self.assertEqual(bare["usage"]["prompt_tokens"], 5)
        model = fixtures.m1_with("m1-no-bos.gguf", tokenizer__ggml__add_bos_token=boolean(False))
        with Server(model) as server:
            bare = server.complete("Once upon a time", max_tokens=1)
            self.assertEqual(bare["usage"]["prompt_tokens"], 4)

    def test_d6_every_end_token_ends(self):
        model = fixtures.m1_with(
            "m1-ends.gguf",
            tokenizer__ggml__eos_token_id=u32(12),
            tokenizer__ggml__eot_token_id=u32(11),
            tokenizer__ggml__eom_token_id=u32(10),
        )
        with Server(model) as server:
            for token in (10, 11, 12):
                body = {
                    "prompt": "Once upon a time",
                    "temperature": 0,
                    "max_tokens": 32,
                    "logit_bias": {str(token): 100},
                }
                for answer in server.both("/v1/completions", body):
                    self.assertEqual(text_of(answer), "", token)
                    self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
                body["ignore_eos"] = True
                for answer in server.both("/v1/completions", body):
                    self.assertEqual(answer["usage"]["completion_tokens"], 32)
                    self.assertEqual(answer["choices"][0]["finish_reason"], "length")
            body = {"prompt": "x", "temperature": 0, "max_tokens": 32, "logit_bias": {"13": 100}}
            answer = server.answer("/v1/completions", body)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length", "no end token")


def common(left, right):
    """Tokens that two prompts begin with alike."""
    pairs = enumerate(zip(left, right))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))


class UnderLoad(Case):
    """FR-E1"""

    def check_rounds(self, model, flags, prompts, known, tokens, rounds, alone_flags):
        def ask(server, prompt):
            return server.complete(prompt, temperature=0, max_tokens=tokens, logprobs=0)

        with Server(model, "--no-enable-prefix-caching", *alone_flags) as server:
            alone = {prompt: ask(server, prompt)["choices"] for prompt in prompts + known}
        with Server(model, *flags) as server:
            ids = {p: server.tokenize(p, add_special_tokens=True) for p in prompts + known}
            for prompt in prompts:
                self.assertEqual(ask(server, prompt)["choices"], alone[prompt])
            asked = list(prompts)
            mixed = known + prompts[::-1]
            at = 0
            for number in range(rounds):
                for width in (2, 7, 32):
                    batch = [mixed[(at + i * (number + 1)) % len(mixed)] for i in range(width)]
                    at += width
                    answers = at_once([lambda p=p: ask(server, p) for p in batch])
                    asked += batch
                    for prompt, answer in zip(batch, answers):
                        self.assertEqual(answer["choices"], alone[prompt], prompt)
                        hit = answer["usage"]["prompt_cache_hit_tokens"]
                        others = list(asked)
                        others.remove(prompt)
                        known_tokens = max(common(ids[prompt], ids[other]) for other in others)
                        self.assertLessEqual(hit, known_tokens)
            self.assertTrue(wait_until(server.idle))
            status = server.status()
            self.assertEqual(status["pages_in_use"], 0)
            self.assertGreater(status["cached_tokens"], 0, "the cache was never used")
        return alone

    def test_e1_small_cache(self):
        expect = REPORTS["FR-E1"]["expect"]["prompt -> [prompt_tokens, text]"]
        names = ["".join(chr(97 + (i // 26**k) % 26) for k in range(3)) for i in range(200)]
        prompts = [f"Once upon a time a {name} met a {name} and a {name[::-1]}." for name in names]
        # F32 pages of M1 are 20 KiB: room for about ten of these prompts and their answers.
        flags = (*F32_KV, "-c", "128", "--kv-cache-memory-bytes", 40 * 20480)
        alone = self.check_rounds(
            fixtures.m1(), flags, prompts, list(expect), 20, 20, (*F32_KV, "-c", "128")
        )
        for prompt, (_, text) in expect.items():
            self.assertEqual(alone[prompt][0]["text"], text)

    def test_e1_on_a_real_model(self):
        prompts = [f"The secret word of room {i} is {i * 7919}. It is" for i in range(20)]
        rounds = 4 if harness.LONG else 1
        flags = ("-c", "512")
        self.check_rounds(fixtures.smollm2(), flags, prompts[:10], prompts[10:], 4, rounds, flags)


class BadFiles(Case):
    """FR-F1"""

    def run_and_measure(self, arguments, folder):
        with open(Path(folder) / "err", "w+b") as log:
            process = subprocess.Popen(
                [harness.artery_bin(), *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=harness.clean_environment(),
            )
            watchdog = threading.Timer(harness.HANG_S, process.kill)
            watchdog.start()
            _, status, usage = os.wait4(process.pid, 0)
            watchdog.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            return process.returncode, usage, log.read().decode()

    def test_f1_tiny_files(self):
        for name, content in REPORTS["FR-F1"]["input"]["files_hex"].items():
            with tempfile.TemporaryDirectory() as folder:
                path = write_file(folder, f"{name}.gguf", bytes.fromhex(content))
                for verb in (["inspect", path], ["serve", path, "--port", 0]):
                    with self.subTest(name=name, verb=verb[0]):
                        code, usage, log = self.run_and_measure(verb, folder)
                        self.assertEqual(code, 3, log)
                        # Processor time, so that a busy machine does not fail it.
                        self.assertLess(usage.ru_utime + usage.ru_stime, 2)
                        self.assertLess(usage.ru_maxrss, 256 * 1024)
                        told = [line for line in log.splitlines() if " info " not in line]
                        self.assertEqual(len(told), 1, log)
                        self.assertIn(path.name, told[0])


if __name__ == "__main__":
    harness.main("e2e_reports_test")

"""What the HTTP API of the running program answers, and what it refuses."""

import json
import math
import os
import random
import time

import fixtures
import harness
from harness import at_once
from wire import Connection

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Say hi"}]
STORY = "Once upon a time"
STORY_ANSWER = ", there was a little girl named Lily. She loved to play outside in the park. One day"


FULL = {
    "model": "stories260K",
    "max_tokens": 3,
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 9,
    "n": 2,
    "seed": 1,
    "stop": ["x"],
    "logit_bias": {"5": 1},
    "presence_penalty": 0.1,
    "stream": True,
    "stream_options": {"include_usage": True},
    "chat_template_kwargs": {"a": 1},
    "metadata": {"a": "b"},
}
FULL_TEXT = {**FULL, "prompt": [STORY, "x"], "echo": True, "logprobs": 2}
FULL_CHAT = {
    **FULL,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "logprobs": True,
    "top_logprobs": 2,
}
JUNK = [None, True, 0, -1, 1.5, 1e300, 2**63, 2**64, -(2**70), "", "x", "\x00", "\ud800", "😹" * 9]
JUNK += [[], {}, [None], [[]], {"": {}}, [1] * 50, {"type": "text"}, [{"type": "x"}]]


def broken(rng, value):
    """A copy with one random part replaced, left out or doubled."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.1:
        return rng.choice(JUNK)
    at = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    copy = value.copy()
    kind = rng.random()
    if kind < 0.15:
        del copy[at]
    elif kind < 0.25 and isinstance(copy, list):
        copy += copy[at:]
    else:
        copy[at] = broken(rng, value[at])
    return copy


class Answers(harness.SharedServer):
    model = staticmethod(fixtures.m1)
    flags = ("--chat-template", "chatml", "--kv-cache-dtype", "f32")

    def check_both(self, path, body):
        whole, streamed = self.server.both(path, body)
        self.assert_same_answer(whole, streamed)
        self.assert_usage(whole["usage"])
        self.assert_usage(streamed["usage"])
        return whole

    def test_streamed_is_the_same_answer(self):
        sampled = {"temperature": 1.1, "seed": 7, "max_tokens": 40}
        for more in (
            {"temperature": 0, "max_tokens": 40},
            sampled,
            {**sampled, "top_p": 0.8, "top_k": 20, "min_p": 0.02},
            {**sampled, "n": 3},
            {**sampled, "stop": ["the", "."]},
            {**sampled, "stop": ["the"], "include_stop_str_in_output": True},
            {**sampled, "presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
            {**sampled, "logit_bias": {str(token): 6 for token in range(130, 250)}},
        ):
            self.check_both(TEXT, {"prompt": STORY, **more, "logprobs": 3})
            self.check_both(TEXT, {"prompt": STORY, **more})
            self.check_both(CHAT, {"messages": HI, **more, "logprobs": True, "top_logprobs": 3})
            self.check_both(CHAT, {"messages": HI, **more})
        many = {"prompt": [STORY, "The sun", "A cat"], "n": 2, **sampled, "echo": True}
        self.check_both(TEXT, {**many, "logprobs": 2})

    def test_choices(self):
        body = {"prompt": STORY, "temperature": 1, "seed": 3, "max_tokens": 24, "n": 2}
        answer = self.check_both(TEXT, body)
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1])
        first, second = (choice["text"] for choice in answer["choices"])
        self.assertNotEqual(first, second, "choices have noise of their own")
        self.assertEqual(answer["usage"]["completion_tokens"], 48)
        self.assertEqual(answer["usage"]["prompt_tokens"], 5)
        prompts = ["The sun", STORY]
        body = {"prompt": prompts, "temperature": 0, "max_tokens": 10, "n": 2}
        answer = self.check_both(TEXT, body)
        alone = [self.server.complete(p, temperature=0, max_tokens=10) for p in prompts]
        texts = [choice["text"] for choice in answer["choices"]]
        expect = [one["choices"][0]["text"] for one in alone for _ in range(2)]
        self.assertEqual(texts, expect)

    def test_prompt_as_ids(self):
        ids = self.server.tokenize(STORY, add_special_tokens=True)
        text = self.server.complete(STORY, temperature=0, max_tokens=24)
        for prompt in (ids, [ids]):
            self.assertEqual(
                self.server.complete(prompt, temperature=0, max_tokens=24)["choices"],
                text["choices"],
            )
        self.assertTrue(text["choices"][0]["text"].startswith(STORY_ANSWER[:40]))

    def test_log_probabilities(self):
        body = {"messages": HI, "logprobs": True, "top_logprobs": 20, "max_tokens": 12}
        answer = self.server.answer(CHAT, {**body, "temperature": 0})
        entries = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(entries), answer["usage"]["completion_tokens"])
        joined = b"".join(bytes(entry["bytes"]) for entry in entries)
        content = answer["choices"][0]["message"]["content"]
        self.assertEqual(joined.decode(errors="replace"), content)
        for entry in entries:
            top = [one["logprob"] for one in entry["top_logprobs"]]
            self.assertEqual(len(top), 20)
            self.assertEqual(top, sorted(top, reverse=True))
            self.assertEqual(entry["logprob"], top[0], "greedy takes the best")
            self.assertLessEqual(sum(map(math.exp, top)), 1 + 1e-5)
        # Temperature, truncation and penalties choose, but do not show.
        first = self.server.answer(CHAT, {**body, "temperature": 2, "top_k": 3, "seed": 1})
        self.assertEqual(
            first["choices"][0]["logprobs"]["content"][0]["top_logprobs"],
            entries[0]["top_logprobs"],
        )

    def test_echo(self):
        prompt = "The sun was shining"
        count = len(self.server.tokenize(prompt, add_special_tokens=True))
        body = {"prompt": prompt, "echo": True, "logprobs": 1, "temperature": 0}
        only = self.check_both(TEXT, {**body, "max_tokens": 0})
        self.assertEqual(only["choices"][0]["text"], prompt)
        self.assertEqual(only["usage"]["completion_tokens"], 0)
        logprobs = only["choices"][0]["logprobs"]
        self.assertEqual({len(values) for values in logprobs.values()}, {count})
        self.assertIsNone(logprobs["token_logprobs"][0], "nothing is before the first token")
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
        more = self.check_both(TEXT, {**body, "max_tokens": 6})
        plain = self.server.complete(prompt, temperature=0, max_tokens=6, logprobs=1)
        self.assertEqual(
            more["choices"][0]["text"], prompt + plain["choices"][0]["text"]
        )
        values = more["choices"][0]["logprobs"]["token_logprobs"]
        self.assertEqual(values[count:], plain["choices"][0]["logprobs"]["token_logprobs"])
        self.assertEqual(values[:count], logprobs["token_logprobs"])
        # What generation gives for a token is what echo gives for it as a prompt.
        generated = plain["choices"][0]["logprobs"]["token_logprobs"]
        ids = self.server.tokenize(more["choices"][0]["text"], add_special_tokens=True)
        again = self.server.complete(ids, echo=True, logprobs=1, max_tokens=0)
        echoed = again["choices"][0]["logprobs"]["token_logprobs"]
        if len(ids) == count + 6:
            self.assertEqual(echoed[count:], generated)

    def test_seeds_hold_under_load(self):
        bodies = [
            {
                "prompt": prompt,
                "seed": seed,
                "temperature": 0.9,
                "max_tokens": 48,
                "logprobs": 2,
                "n": 1 + seed % 2,
            }
            for seed, prompt in enumerate([STORY, "The sun", "Lily and Tom", "A cat sat"] * 3)
        ]
        alone = [self.server.answer(TEXT, body)["choices"] for body in bodies]
        for number in range(4):
            random.Random(number).shuffle(order := list(range(len(bodies))))
            found = at_once([lambda i=i: self.server.answer(TEXT, bodies[i]) for i in order])
            for i, answer in zip(order, found):
                self.assertEqual(answer["choices"], alone[i])
        unseeded = {**bodies[0], "seed": None, "max_tokens": 30}
        texts = {self.server.answer(TEXT, unseeded)["choices"][0]["text"] for _ in range(6)}
        self.assertGreater(len(texts), 1, "without a seed answers differ")

    def test_ends(self):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 30}
        ids = self.server.tokenize("little")  # this vocabulary puts a space in front
        little = self.server.answer(TEXT, {**body, "stop_token_ids": ids})
        self.assertEqual(little["choices"][0]["text"], ", there was a")
        self.assertEqual(little["choices"][0]["finish_reason"], "stop")
        self.assertEqual(little["choices"][0]["stop_reason"], ids[0])
        named = self.server.answer(TEXT, {**body, "stop": "girl"})
        self.assertEqual(named["choices"][0]["stop_reason"], "girl")
        end = {"2": 100}
        empty = self.server.answer(TEXT, {**body, "logit_bias": end})
        self.assertEqual(empty["choices"][0]["text"], "")
        held = self.server.answer(TEXT, {**body, "logit_bias": end, "min_tokens": 9})
        self.assertGreaterEqual(held["usage"]["completion_tokens"], 9)
        self.assertEqual(held["choices"][0]["finish_reason"], "stop")

    def test_next_turn_hits_the_cache(self):
        messages = [{"role": "user", "content": "Tell me of a cat and a dog in the park. " * 3}]
        body = {"temperature": 0, "max_tokens": 32, "ignore_eos": True}
        first = self.server.chat(messages, **body)
        said = first["choices"][0]["message"]
        messages += [said, {"role": "user", "content": "And then?"}]
        second = self.server.chat(messages, **body)
        hit = second["usage"]["prompt_cache_hit_tokens"]
        self.assertGreaterEqual(hit, first["usage"]["prompt_tokens"] // 16 * 16)
        self.assertGreater(hit, 0)
        salted = self.server.chat(messages, **body, cache_salt="another tenant")
        self.assertEqual(salted["usage"]["prompt_cache_hit_tokens"], 0)
        self.assertEqual(salted["choices"], second["choices"])
        self.assertEqual(self.server.post("/reset_prefix_cache", {}).status, 200)
        again = self.server.chat(messages, **body)
        self.assertEqual(again["usage"]["prompt_cache_hit_tokens"], 0)
        self.assertEqual(again["choices"], second["choices"])

    def test_timings(self):
        answer = self.server.complete(STORY, max_tokens=8, temperature=0, timings=True)
        timings = answer["timings"]
        for name in ("queue_s", "cache_lookup_s", "load_s", "prefill_s", "decode_s"):
            self.assertGreaterEqual(timings[name], 0)
        self.assertGreater(timings["decode_tokens_per_s"], 0)
        self.assertNotIn("timings", self.server.complete(STORY, max_tokens=1))

    def test_models_and_names(self):
        listed = self.server.answer_get("/v1/models")
        self.assertEqual(listed["object"], "list")
        name = listed["data"][0]["id"]
        self.assertEqual(self.server.complete("x", max_tokens=1, model=name)["model"], name)
        response = self.server.post(TEXT, {"prompt": "x", "model": "gpt-17"})
        self.assert_refused(response, 404, "model", "model_not_found")


class Penalties(harness.SharedServer):
    """On M2, whose logits lie within a few units of 0, so that a bias of 100 decides."""

    model = staticmethod(fixtures.m2)

    def generate(self, prompt, bias, max_tokens, **more):
        body = {"temperature": 0, "max_tokens": max_tokens, "logit_bias": bias, "logprobs": 0}
        answer = self.server.complete(prompt, **body, **more)
        return answer["choices"][0]["logprobs"]["tokens"]

    def setUp(self):
        self.cat, self.dog = (self.server.tokenize(text)[0] for text in (" cat", " dog"))
        self.bias = {str(self.cat): 100, str(self.dog): 85}

    def test_frequency_counts_generated_tokens(self):
        for prompt in ([self.dog], [self.cat] * 40):
            self.assertEqual(self.generate(prompt, self.bias, 16), [" cat"] * 16)
            tokens = self.generate(prompt, self.bias, 16, frequency_penalty=2)
            self.assertTrue(2 <= tokens.index(" dog") <= 14, tokens)

    def test_presence_counts_generated_tokens_once(self):
        """cat leads by less than the penalty on the second token, where it has been generated."""

        def lead(context, other):
            """How far cat's logit is above the other's after these tokens."""
            values = []
            for token in (self.cat, other):
                ids = [*context, token]
                echoed = self.server.complete(ids, echo=True, logprobs=0, max_tokens=0)
                values.append(echoed["choices"][0]["logprobs"]["token_logprobs"][-1])
            return values[0] - values[1]

        for text in (" dog", " sun", " tree", " house", " boat", " ship", " road", " king"):
            other = self.server.tokenize(text)[0]
            first, second = lead([self.cat], other), lead([self.cat] * 2, other)
            if 0.3 < 1 + first - second < 1.7:
                break
        else:
            self.fail("no word fits")
        bias = {str(self.cat): 50, str(other): 50 + second - 1}
        self.assertEqual(self.generate([self.cat], bias, 2), [" cat"] * 2)
        tokens = self.generate([self.cat], bias, 2, presence_penalty=2)
        self.assertEqual(tokens, [" cat", text], "the prompt does not count, the answer does")

    def test_repetition_counts_the_prompt_too(self):
        both = {"repetition_penalty": 2}
        self.assertEqual(self.generate([self.dog], self.bias, 2, **both), [" cat", " cat"])
        self.assertEqual(self.generate("x", self.bias, 2, **both), [" cat", " dog"])
        self.assertEqual(self.generate([self.cat], self.bias, 1, **both), [" dog"])

    def test_empty_prompt_of_a_vocabulary_without_bos(self):
        self.assert_refused(self.server.post(TEXT, {"prompt": ""}), 400, "prompt")


class Refusals(harness.SharedServer):
    model = staticmethod(fixtures.m1)
    flags = ("--chat-template", "chatml", "--max-body-bytes", "200000")

    def test_wrong_fields_are_named(self):
        fields = {
            "temperature": [-1, 3, "hot", [], 1e308],
            "top_p": [0, 1.5, -0.1, "x"],
            "top_k": [-2, 1.5, "x", 10**12],
            "min_p": [-0.1, 1.1],
            "presence_penalty": [3, -3, "x"],
            "frequency_penalty": [2.1],
            "repetition_penalty": [0, -1, "x"],
            "max_tokens": [-1, "x", 1.5, {}],
            "n": [0, -1, 1.5, "x", 10**6],
            "seed": ["x", 1.5, {}],
            "stop": [5, [5], [""], ["a"] * 1000],
            "logit_bias": [[], "x", {"x": 1}, {"99999": 1}, {"5": 101}, {"5": "x"}],
            "stream": ["yes", 1],
            "stop_token_ids": [5, ["x"], [-1], [512]],
            "min_tokens": [-1, "x"],
            "priority": ["x", 1.5],
            "user": [5],
        }
        for name, values in fields.items():
            for value in values:
                for path, body in ((TEXT, {"prompt": "x"}), (CHAT, {"messages": HI})):
                    response = self.server.post(path, {**body, name: value})
                    with self.subTest(path=path, name=name, value=str(value)[:40]):
                        self.assertEqual(response.status, 400, response)
                        self.assertTrue(response.error["param"].startswith(name), response)
                        self.assertIn(name, response.error["message"])
        self.assert_right_answer()

    def test_wrong_prompts_and_messages_are_named(self):
        for prompt in (None, 5, {}, [], [[]], [1, "x"], ["x", 1], [512], [-1], [1.5]):
            response = self.server.post(TEXT, {"prompt": prompt})
            with self.subTest(prompt=prompt):
                self.assert_refused(response, 400)
                self.assertTrue(response.error["param"].startswith("prompt"), response)
        wrong = [None, [], {}, "x", [5], [{}], [{"role": "user", "content": 5}], [{"content": "x"}]]
        wrong += [[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]]
        for messages in wrong:
            response = self.server.post(CHAT, {"messages": messages})
            with self.subTest(messages=messages):
                self.assert_refused(response, 400)
                self.assertTrue(response.error["param"].startswith("messages"), response)
        self.assert_right_answer()

    def test_broken_bodies(self):
        for raw in (
            b"",
            b"{",
            b"[]",
            b'"x"',
            b"null",
            b'{"prompt":"x"',
            b'{"prompt":"x"}{"prompt":"y"}',
            b'{"prompt":"x","temperature":NaN}',
            b'{"prompt":"x","temperature":Infinity}',
            b'{"prompt":"x","temperature":-1e999}',
            b'{"prompt":"x","max_tokens":1e999}',
            b'{"prompt":"\xff\xfe"}',
            b'{"prompt":"\\ud800"}',
            b'{"prompt":"x",}',
            b"\x00" * 50,
            b"\xef\xbb\xbf",
        ):
            with self.subTest(raw=raw):
                self.assert_refused(self.server.post(TEXT, raw), 400)
        self.assert_right_answer()

    def test_random_bodies(self):
        """Valid bodies with something broken: an answer or a named refusal, never a failure."""
        rng = random.Random(int(os.environ.get("ARTERY_SEED") or time.time_ns() % 2**32))
        seed = rng.getrandbits(32)
        rng.seed(seed)
        for number in range(2000 if harness.LONG else 300):
            path, body = rng.choice([(TEXT, dict(FULL_TEXT)), (CHAT, dict(FULL_CHAT))])
            for _ in range(rng.randrange(1, 4)):
                body = broken(rng, body)
            raw = json.dumps(body).encode()
            if rng.random() < 0.2:
                raw = raw[: rng.randrange(len(raw))]
            if rng.random() < 0.2:
                at = rng.randrange(len(raw) + 1)
                raw = raw[:at] + rng.randbytes(rng.randrange(4)) + raw[at + rng.randrange(4) :]
            response = self.server.post(path, raw)
            told = f"seed {seed}, body {number}: {raw!r}\n{response}"
            self.assertIn(response.status, (200, 400, 404, 501), told)
            if response.status == 404:
                self.assertEqual(response.error["param"], "model", told)
            if response.status == 200 and response.headers["content-type"].startswith("text/"):
                self.assertTrue(response.body.endswith(b"data: [DONE]\n\n"), told)
                self.assertNotIn(b'"error"', response.body, told)
            elif response.status != 200:
                self.assertTrue(response.error["message"], told)
        self.assert_right_answer()

    def test_never_200_for_a_job_not_done(self):
        for name, value in {
            "suffix": "x",
            "best_of": 3,
            "response_format": {"type": "json_object"},
            "structured_outputs": {"regex": "a"},
            "guided_regex": "a",
            "use_beam_search": True,
            "truncate_prompt_tokens": 5,
            "prompt_logprobs": 1,
        }.items():
            response = self.server.post(TEXT, {"prompt": "x", name: value})
            with self.subTest(name=name):
                self.assertIn(response.status, (400, 501))
                self.assertTrue(response.error["param"].startswith(name), response)
        response = self.server.post(TEXT, {"prompt": "x", "max_tokens": 0})
        self.assert_refused(response, 400, "max_tokens")
        body = {"prompt": "x", "stream_options": {"include_usage": True}}
        response = self.server.post(TEXT, body)
        self.assert_refused(response, 400, "stream_options")
        response = self.server.post(CHAT, {"messages": HI, "top_logprobs": 3})
        self.assert_refused(response, 400, "top_logprobs")

    def test_unknown_fields_are_ignored(self):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 12}
        more = {"x": [1, {"y": None}], "service_tier": "auto", "store": False}
        plain = self.server.answer(TEXT, body)["choices"]
        self.assertEqual(self.server.answer(TEXT, {**body, **more})["choices"], plain)
        nulls = {"stop": None, "seed": None, "n": None, "logit_bias": None, "stream": None}
        self.assertEqual(self.server.answer(TEXT, {**body, **nulls})["choices"], plain)

    def test_paths_methods_types_sizes(self):
        response = self.server.get("/v1/chat/completion")
        self.assert_refused(response, 404)
        response = self.server.get(TEXT)
        self.assert_refused(response, 405)
        self.assertIn("POST", response.headers["allow"])
        self.assert_refused(self.server.ask("DELETE", "/health"), 405)
        response = self.server.post(TEXT, {"prompt": "x"}, [("Content-Type", "text/plain")])
        self.assert_refused(response, 415)
        charset = [("Content-Type", "Application/JSON; charset=utf-8")]
        self.assertEqual(self.server.post(TEXT, {"prompt": "x"}, charset).status, 200)
        self.assert_refused(self.server.post(TEXT, {"prompt": "x" * 300000}), 413)
        with Connection(self.server.port) as connection:
            connection.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Type: application/json\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
            )
            for _ in range(15):
                connection.send(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            self.assert_refused(connection.response(), 413)
        self.assertEqual(self.server.ask("HEAD", "/").status, 200)
        self.assertEqual(self.server.get("/version").status, 200)
        self.assert_right_answer()

    def test_malformed_http(self):
        for raw in (
            b"nonsense\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nBad Header\r\n\r\n",
            b"POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
            b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            with Connection(self.server.port) as connection:
                connection.send(raw)
                response = connection.response()
                self.assertIn(response.status, (400, 413, 431, 505), raw[:60])
                self.assertTrue(response.error["message"])
        self.assert_right_answer()

    def assert_right_answer(self):
        answer = self.server.complete(STORY, temperature=0, max_tokens=20)
        self.assertTrue(STORY_ANSWER.startswith(answer["choices"][0]["text"]), answer)


if __name__ == "__main__":
    harness.main("e2e_api_test")

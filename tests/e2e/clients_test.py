"""The official `openai` and `anthropic` clients against the running program, as a user's script would use it.

The clients live in an environment of their own under build/venv-clients, made on the first run; the
system's Python is not touched. Where it cannot be installed, these tests are skipped and counted.
"""

import json
import subprocess
import sys
import unittest

import fixtures
import harness
import talker
from harness import Server

# 3.57 and 2.14 were tried.
REQUIREMENTS = ("openai>=3,<4", "anthropic>=2,<3")
VENV = fixtures.ROOT / "build" / "venv-clients"
PYTHON = VENV / "bin" / "python"

# Runs in the environment: one JSON object on standard output for all that was seen.
SCRIPT = r"""
import json, sys
import openai
from openai import OpenAI

url, key = sys.argv[1:3]
client = OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)
seen = {"version": openai.__version__}
seen["models"] = [model.id for model in client.models.list()]
name = seen["models"][0]

chat = dict(
    model=name,
    messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hi"}],
    temperature=0,
    max_tokens=12,
    seed=5,
    logprobs=True,
    top_logprobs=2,
)
whole = client.chat.completions.create(**chat)
seen["chat"] = whole.choices[0].message.content
seen["chat_role"] = whole.choices[0].message.role
seen["chat_finish"] = whole.choices[0].finish_reason
seen["chat_usage"] = whole.usage.model_dump()
seen["chat_fingerprint"] = whole.system_fingerprint
seen["chat_logprobs"] = [entry.logprob for entry in whole.choices[0].logprobs.content]

chunks = list(
    client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True})
)
seen["stream"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
seen["stream_finish"] = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
seen["stream_usage"] = chunks[-1].usage.model_dump()
seen["stream_logprobs"] = [
    entry.logprob
    for c in chunks
    if c.choices and c.choices[0].logprobs
    for entry in c.choices[0].logprobs.content
]

# The helper raises on an answer cut by its length, so this one ends at a word of the answer.
stop = seen["chat"].split()[-1]
seen["helper_expect"] = seen["chat"][: seen["chat"].index(stop)]
with client.chat.completions.stream(
    model=name, messages=chat["messages"], temperature=0, max_tokens=40, stop=[stop]
) as stream:
    seen["helper"] = "".join(e.delta for e in stream if e.type == "content.delta")
    seen["helper_final"] = stream.get_final_completion().choices[0].message.content

text = dict(model=name, prompt="Once upon a time", temperature=0, max_tokens=12, logprobs=2)
whole = client.completions.create(**text, n=2)
seen["text"] = [choice.text for choice in whole.choices]
seen["text_logprobs"] = whole.choices[0].logprobs.token_logprobs
seen["text_stream"] = "".join(
    chunk.choices[0].text for chunk in client.completions.create(**text, stream=True)
)
extra = client.completions.create(
    model=name, prompt="x", max_tokens=5, extra_body={"top_k": 1, "ignore_eos": True}
)
seen["extra_tokens"] = extra.usage.completion_tokens

# The connection is left early, as by a user who has read enough.
stream = client.completions.create(model=name, prompt="x", max_tokens=400, stream=True)
next(iter(stream))
stream.close()

seen["errors"] = {}
def expect(kind, call):
    try:
        call()
        seen["errors"][kind] = "none"
    except openai.APIStatusError as error:
        seen["errors"][kind] = [type(error).__name__, error.status_code, error.code, error.param]
expect("field", lambda: client.completions.create(model=name, prompt="x", temperature=9))
expect("model", lambda: client.completions.create(model="other", prompt="x"))
expect("long", lambda: client.completions.create(model=name, prompt="a " * 600))
stranger = OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
expect("key", lambda: stranger.models.list())
print(json.dumps(seen))
"""

SAID = (
    "<think>\nThe user wants weather.\n</think>\n\nLet me look.\n<tool_call>\n"
    '{"name": "get_weather", "arguments": {"city": "Zürich \\"Ost\\"", "days": 3}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)

# A turn with tools, streamed, whole and by the client's helper, and the turn that follows it.
TOOLS_SCRIPT = r"""
import json, sys
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
tools = [
    {"type": "function", "function": {"name": "get_weather", "parameters": schema}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
]
messages = [{"role": "user", "content": "Weather?"}]
chat = dict(model="talker", messages=messages, tools=tools, temperature=0)
seen = {}
whole = client.chat.completions.create(**chat).choices[0]
seen["whole"] = whole.message.model_dump(exclude_none=True)
seen["finish"] = whole.finish_reason

content, reasoning, calls, reasons = "", "", {}, []
for chunk in client.chat.completions.create(**chat, stream=True):
    choice = chunk.choices[0]
    reasons.append(choice.finish_reason)
    content += choice.delta.content or ""
    reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    for delta in choice.delta.tool_calls or []:
        call = calls.setdefault(delta.index, {"id": delta.id, "name": "", "arguments": ""})
        call["name"] += delta.function.name or ""
        call["arguments"] += delta.function.arguments or ""
seen["stream"] = {"content": content, "reasoning": reasoning, "calls": list(calls.values())}
seen["stream_finish"] = [reason for reason in reasons if reason]

with client.chat.completions.stream(**chat) as stream:
    names = [e.name for e in stream if e.type == "tool_calls.function.arguments.done"]
    final = stream.get_final_completion().choices[0]
seen["helper"] = [call.function.arguments for call in final.message.tool_calls]
seen["helper_names"] = names

one = client.chat.completions.create(**chat, parallel_tool_calls=False).choices[0]
seen["one"] = [call.function.name for call in one.message.tool_calls]

messages.append(whole.message.model_dump(exclude_none=True))
for call in whole.message.tool_calls:
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 C"})
after = client.chat.completions.create(**chat)
seen["cached"] = after.usage.prompt_tokens_details.cached_tokens
seen["prompt"] = after.usage.prompt_tokens
print(json.dumps(seen))
"""


# The same turn through Responses, kept, streamed and gone on from.
RESPONSES_SCRIPT = r"""
import json, sys
import openai
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
tools = [
    {"type": "function", "name": "get_weather", "parameters": schema, "strict": False},
    {"type": "function", "name": "now", "parameters": {"type": "object"}, "strict": False},
]
ask = dict(model="talker", input="Weather?", tools=tools, temperature=0)
seen = {}
whole = client.responses.create(**ask)
seen["types"] = [item.type for item in whole.output]
seen["text"] = whole.output_text
seen["calls"] = [[i.name, i.arguments] for i in whole.output if i.type == "function_call"]
seen["usage"] = whole.usage.model_dump()
with client.responses.stream(**ask) as stream:
    for event in stream:
        seen.setdefault("events", []).append(event.type)
    final = stream.get_final_response()
seen["final"] = [[i.name, i.arguments] for i in final.output if i.type == "function_call"]
seen["got"] = client.responses.retrieve(whole.id).output_text
outputs = [
    {"type": "function_call_output", "call_id": i.call_id, "output": "21 C"}
    for i in whole.output
    if i.type == "function_call"
]
after = client.responses.create(**{**ask, "input": outputs}, previous_response_id=whole.id)
seen["cached"] = after.usage.input_tokens_details.cached_tokens
seen["after"] = after.usage.input_tokens
client.responses.delete(whole.id)
try:
    client.responses.retrieve(whole.id)
except openai.NotFoundError as error:
    seen["gone"] = error.status_code
print(json.dumps(seen))
"""

# And through Messages.
MESSAGES_SCRIPT = r"""
import json, sys
import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
tools = [
    {"name": "get_weather", "input_schema": schema},
    {"name": "now", "input_schema": {"type": "object"}},
]
messages = [{"role": "user", "content": "Weather?"}]
# 2.14 has no argument for the temperature.
ask = dict(model="talker", messages=messages, tools=tools, max_tokens=300)
ask["extra_body"] = {"temperature": 0}
seen = {}
whole = client.messages.create(**ask)
seen["types"] = [block.type for block in whole.content]
seen["calls"] = [[b.name, b.input] for b in whole.content if b.type == "tool_use"]
seen["stop"] = whole.stop_reason
seen["usage"] = whole.usage.model_dump()
with client.messages.stream(**ask) as stream:
    seen["text"] = "".join(stream.text_stream)
    final = stream.get_final_message()
seen["final"] = [[b.name, b.input] for b in final.content if b.type == "tool_use"]
seen["thinking"] = [b.thinking for b in final.content if b.type == "thinking"]
count = client.messages.count_tokens(model="talker", messages=messages, tools=tools)
seen["count"] = count.input_tokens
messages.append({"role": "assistant", "content": [b.model_dump() for b in whole.content]})
results = [
    {"type": "tool_result", "tool_use_id": b.id, "content": "21 C"}
    for b in whole.content
    if b.type == "tool_use"
]
messages.append({"role": "user", "content": results})
after = client.messages.create(**ask)
seen["cached"] = after.usage.cache_read_input_tokens
seen["after"] = after.usage.input_tokens + after.usage.cache_read_input_tokens
seen["errors"] = {}
for name, more in (("model", {"model": "other"}), ("field", {"extra_body": {"temperature": 9}})):
    try:
        client.messages.create(**{**ask, **more})
    except anthropic.APIStatusError as error:
        seen["errors"][name] = [type(error).__name__, error.status_code]
print(json.dumps(seen))
"""

# An image to a model that reads text only: each client's own error for 400, naming the place.
IMAGES_SCRIPT = r"""
import json, sys
import anthropic, openai

chat = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
messages = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
url = "data:image/png;base64," + data
ask = {"type": "text", "text": "What is this?"}
seen = {}
def expect(name, call):
    try:
        call()
        seen[name] = "none"
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        seen[name] = [type(error).__name__, error.status_code, str(error.body)]
for name, link in (("chat", url), ("chat_url", "http://169.254.169.254/latest/meta-data")):
    part = {"type": "image_url", "image_url": {"url": link}}
    turn = {"role": "user", "content": [ask, part]}
    expect(name, lambda: chat.chat.completions.create(model="talker", messages=[turn]))
part = {"type": "input_image", "image_url": url, "detail": "low"}
turn = {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, part]}
expect("responses", lambda: chat.responses.create(model="talker", input=[turn]))
source = {"type": "base64", "media_type": "image/png", "data": data}
turn = {"role": "user", "content": [ask, {"type": "image", "source": source}]}
expect("messages", lambda: messages.messages.create(model="talker", messages=[turn], max_tokens=9))
expect("count", lambda: messages.messages.count_tokens(model="talker", messages=[turn]))
# A tool that gives a picture.
use = {"type": "tool_use", "id": "t1", "name": "see", "input": {}}
result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image", "source": source}]}
turns = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": [use]},
    {"role": "user", "content": [result]},
]
expect("result", lambda: messages.messages.create(model="talker", messages=turns, max_tokens=9))
broken = {"type": "base64", "media_type": "image/png", "data": "@@@"}
turn = {"role": "user", "content": [{"type": "image", "source": broken}]}
expect("broken", lambda: messages.messages.create(model="talker", messages=[turn], max_tokens=9))
text = {"role": "user", "content": [ask]}
seen["after"] = chat.chat.completions.create(model="talker", messages=[text]).choices[0].finish_reason
print(json.dumps(seen))
"""

# What the clients' newer helpers, async forms and retries see; the model answers a tool's result.
HELPERS_SCRIPT = r"""
import asyncio, json, sys, threading, time
import anthropic, openai, pydantic

url, slow = sys.argv[1], "slow-secret"
made = dict(api_key="free-secret", timeout=120, max_retries=0)
client = openai.OpenAI(base_url=url + "/v1", **made)
claude = anthropic.Anthropic(base_url=url, **made)
ask = dict(model="talker", messages=[{"role": "user", "content": "Weather?"}])
short = dict(model="talker", input="Weather?", max_output_tokens=20)
seen = {}


class get_weather(pydantic.BaseModel):
    city: str
    days: int


class now(pydantic.BaseModel):
    pass


tools = [openai.pydantic_function_tool(one) for one in (get_weather, now)]
parsed = client.chat.completions.parse(**ask, tools=tools).choices[0].message.tool_calls
seen["parsed"] = [call.function.parsed_arguments.model_dump() for call in parsed]
with client.chat.completions.stream(**ask, tools=tools) as stream:
    done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
seen["parsed_stream"] = [event.parsed_arguments.model_dump() for event in done]
flat = [{"type": "function", **tool["function"]} for tool in tools]
flat[1]["strict"] = False
items = client.responses.parse(model="talker", input="Weather?", tools=flat).output
seen["parsed_responses"] = [i.parsed_arguments for i in items if i.type == "function_call"][:1]


@anthropic.beta_tool(name="get_weather")
def weather_tool(city: str, days: int) -> str:
    "Weather."
    return f"{city}: {days}"


@anthropic.beta_tool(name="now")
def now_tool() -> str:
    "The time."
    return "12:00"


runner = claude.beta.messages.tool_runner(**ask, max_tokens=300, tools=[weather_tool, now_tool])
answers = list(runner)
seen["runner"] = [answer.content[-1].type for answer in answers]
seen["runner_said"] = answers[-1].content[-1].text
seen["beta_count"] = claude.beta.messages.count_tokens(**ask).input_tokens
seen["count"] = claude.messages.count_tokens(**ask).input_tokens
seen["input_count"] = client.responses.input_tokens.count(model="talker", input="Weather?").input_tokens
seen["claude_models"] = [model.display_name for model in claude.models.list()]

raw = client.chat.completions.with_raw_response.create(**ask, max_tokens=5)
seen["raw"] = [raw.headers["x-request-id"], raw.parse()._request_id, raw.status_code]
seen["claude_id"] = bool(claude.messages.create(**ask, max_tokens=5)._request_id)
endless = {"extra_body": {"ignore_eos": True}}
seen["lengths"] = [
    client.responses.create(**short, **endless).usage.output_tokens,
    client.responses.create(**{**short, "max_output_tokens": 300}, **endless).usage.output_tokens,
    claude.messages.create(**ask, max_tokens=300, **endless).usage.output_tokens,
]


def fault(call):
    try:
        return call()
    except (openai.OpenAIError, anthropic.AnthropicError) as error:
        return type(error).__name__


late = client.with_options(timeout=0.02)
seen["late"] = fault(lambda: late.chat.completions.create(**ask, max_tokens=3900, **endless))
began = time.monotonic()
seen["format"] = fault(
    lambda: client.with_options(max_retries=2).chat.completions.parse(**ask, response_format=now)
)
seen["format_s"] = time.monotonic() - began  # asking again would not help, so it does not

# A key for one request at a time: the second waits as it is told to, and is answered.
one = openai.OpenAI(base_url=url + "/v1", api_key=slow, max_retries=0)
running = one.chat.completions.create(**ask, max_tokens=3900, stream=True, **endless)
next(iter(running))
try:
    one.responses.create(**short)
except openai.RateLimitError as error:
    seen["wait_s"] = int(error.response.headers["retry-after"])
threading.Timer(0.1, running.close).start()
retried = one.with_options(max_retries=4).responses.with_raw_response.create(**short)
seen["retries"] = retried.retries_taken


async def everything():
    chat = openai.AsyncOpenAI(base_url=url + "/v1", **made)
    messages = anthropic.AsyncAnthropic(base_url=url, **made)

    async def of_chat():
        stream = await chat.chat.completions.create(**ask, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    async def of_responses():
        async with chat.responses.stream(model="talker", input="Weather?") as stream:
            return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])

    async def of_messages():
        async with messages.messages.stream(**ask, max_tokens=300) as stream:
            return "".join([text async for text in stream.text_stream])

    return await asyncio.gather(*(one() for one in 3 * (of_chat, of_responses, of_messages)))


seen["async"] = sorted(set(asyncio.run(everything())))
print(json.dumps(seen))
"""


def install():
    """The environment's Python with the clients in it, or a reason to skip."""
    check = [
        PYTHON,
        "-c",
        "import anthropic, openai; assert openai.__version__.startswith('3.'); "
        "assert anthropic.__version__.startswith('2.')",
    ]
    if PYTHON.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", VENV],
            check=True,
            capture_output=True,
            timeout=300,
        )
        subprocess.run(
            [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS],
            check=True,
            capture_output=True,
            timeout=600,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()[-200:]
        raise unittest.SkipTest(f"the clients cannot be installed: {error} {why}") from None


class OpenAiClient(harness.Case):
    @classmethod
    def setUpClass(cls):
        install()
        # Against the wire, not through it: a proxy of the environment must not see loopback.
        flags = ("--chat-template", "chatml", "--api-key", "secret", "--kv-cache-dtype", "f32")
        with Server(fixtures.m1(), *flags) as server:
            done = subprocess.run(
                [PYTHON, "-I", "-c", SCRIPT, f"http://127.0.0.1:{server.port}", "secret"],
                capture_output=True,
                env={"NO_PROXY": "127.0.0.1", "PATH": "/usr/bin:/bin"},
                timeout=harness.HANG_S,
            )
            assert done.returncode == 0, f"{done.stderr.decode()[-3000:]}\n{server.log}"
            cls.seen = json.loads(done.stdout)
            cls.idle = harness.wait_until(server.idle)
            cls.chat = server.ask(
                "POST",
                "/v1/chat/completions",
                {
                    "messages": [
                        {"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Say hi"},
                    ],
                    "temperature": 0,
                    "max_tokens": 12,
                },
                [("Authorization", "Bearer secret")],
            ).json

    def test_models(self):
        self.assertEqual(self.seen["models"], ["stories260K"])

    def test_chat(self):
        seen = self.seen
        self.assertEqual(seen["chat"], self.chat["choices"][0]["message"]["content"])
        self.assertEqual(seen["chat_role"], "assistant")
        self.assertEqual(seen["chat_finish"], self.chat["choices"][0]["finish_reason"])
        self.assertEqual(seen["chat_fingerprint"], self.chat["system_fingerprint"])
        self.assertEqual(len(seen["chat_logprobs"]), seen["chat_usage"]["completion_tokens"])

    def test_chat_streamed(self):
        seen = self.seen
        self.assertEqual(seen["stream"], seen["chat"])
        self.assertEqual(seen["stream_finish"], seen["chat_finish"])
        self.assertEqual(seen["stream_logprobs"], seen["chat_logprobs"])
        self.assertEqual(seen["helper"], seen["helper_expect"])
        self.assertEqual(seen["helper_final"], seen["helper_expect"])
        for usage in (seen["stream_usage"], seen["chat_usage"]):
            self.assertEqual(usage["prompt_tokens"], self.chat["usage"]["prompt_tokens"])
            self.assertEqual(usage["completion_tokens"], self.chat["usage"]["completion_tokens"])

    def test_completions(self):
        text = ", there was a little girl named"
        self.assertEqual(len(self.seen["text"]), 2)
        for one in (*self.seen["text"], self.seen["text_stream"]):
            self.assertTrue(one.startswith(text), one)
        self.assertEqual(self.seen["text"][0], self.seen["text_stream"])
        self.assertEqual(len(self.seen["text_logprobs"]), 12)
        self.assertEqual(self.seen["extra_tokens"], 5)

    def test_errors_are_the_clients_own(self):
        errors = self.seen["errors"]
        self.assertEqual(errors["field"], ["BadRequestError", 400, "invalid_value", "temperature"])
        self.assertEqual(errors["model"], ["NotFoundError", 404, "model_not_found", "model"])
        long = ["BadRequestError", 400, "context_length_exceeded", "prompt"]
        self.assertEqual(errors["long"], long)
        self.assertEqual(errors["key"][:2], ["AuthenticationError", 401])

    def test_a_closed_stream_ends_the_work(self):
        self.assertTrue(self.idle)


class OpenAiClientTools(harness.Case):
    def test_tool_calls(self):
        install()
        with Server(talker.talker("talker", SAID), "--served-model-name", "talker") as server:
            done = subprocess.run(
                [PYTHON, "-I", "-c", TOOLS_SCRIPT, f"http://127.0.0.1:{server.port}"],
                capture_output=True,
                env={"NO_PROXY": "127.0.0.1", "PATH": "/usr/bin:/bin"},
                timeout=harness.HANG_S,
            )
            assert done.returncode == 0, f"{done.stderr.decode()[-3000:]}\n{server.log}"
            self.assertIn("tool-call-parser=hermes reasoning-parser=qwen3", server.log)
        seen = json.loads(done.stdout)
        arguments = ['{"city": "Zürich \\"Ost\\"", "days": 3}', "{}"]
        whole = seen["whole"]
        self.assertEqual(whole["content"], "Let me look.")
        self.assertEqual(whole["reasoning_content"], "The user wants weather.")
        self.assertEqual([call["function"]["arguments"] for call in whole["tool_calls"]], arguments)
        self.assertEqual(seen["finish"], "tool_calls")
        self.assertEqual(seen["stream_finish"], ["tool_calls"])
        streamed = seen["stream"]
        self.assertEqual(streamed["content"], whole["content"])
        self.assertEqual(streamed["reasoning"], whole["reasoning_content"])
        self.assertEqual([call["arguments"] for call in streamed["calls"]], arguments)
        self.assertEqual([call["name"] for call in streamed["calls"]], ["get_weather", "now"])
        self.assertEqual(len({call["id"] for call in streamed["calls"]}), 2)
        self.assertEqual(seen["helper"], arguments)
        self.assertEqual(seen["helper_names"], ["get_weather", "now"])
        self.assertEqual(seen["one"], ["get_weather"])
        # The history renders to what the model said.
        self.assertGreater(seen["cached"], 0.5 * seen["prompt"])


def run_on_talker(script, then=None, flags=()):
    """What a script saw of a model that says SAID, and `then` after a tool's result."""
    install()
    model = talker.talker("talker", SAID, then)
    with Server(model, "--served-model-name", "talker", *flags) as server:
        done = subprocess.run(
            [PYTHON, "-I", "-c", script, f"http://127.0.0.1:{server.port}"],
            capture_output=True,
            env={"NO_PROXY": "127.0.0.1", "PATH": "/usr/bin:/bin"},
            timeout=harness.HANG_S,
        )
        assert done.returncode == 0, f"{done.stderr.decode()[-3000:]}\n{server.log}"
    return json.loads(done.stdout)


class OtherApis(harness.Case):
    WEATHER = {"city": 'Zürich "Ost"', "days": 3}

    def test_responses(self):
        seen = run_on_talker(RESPONSES_SCRIPT)
        kinds = ["reasoning", "message", "function_call", "function_call"]
        self.assertEqual(seen["types"], kinds)
        self.assertEqual(seen["text"], "Let me look.")
        self.assertEqual([name for name, _ in seen["calls"]], ["get_weather", "now"])
        self.assertEqual(json.loads(seen["calls"][0][1]), self.WEATHER)
        self.assertEqual(seen["final"], seen["calls"])
        self.assertEqual(seen["events"][0], "response.created")
        self.assertEqual(seen["events"][-1], "response.completed")
        self.assertEqual(seen["got"], seen["text"])
        self.assertEqual(seen["gone"], 404)
        # The stored history renders to what the model said.
        self.assertGreater(seen["cached"], 0.5 * seen["after"])

    def test_images_are_refused(self):
        seen = run_on_talker(IMAGES_SCRIPT)
        after = seen.pop("after")
        self.assertIn(after, ("stop", "tool_calls", "length"))
        for name, (kind, status, body) in seen.items():
            self.assertEqual((kind, status), ("BadRequestError", 400), name)
            if name != "broken":
                self.assertIn("this model takes text only", body, name)
        places = {
            "chat": "messages[0].content[1]",
            "responses": "input[0]",
            "messages": "messages.0.content[1]",
            "count": "messages.0.content[1]",
            "result": "messages.2.content.0.tool_result",
        }
        for name, place in places.items():
            self.assertIn(place, seen[name][2], name)

    def test_messages(self):
        seen = run_on_talker(MESSAGES_SCRIPT)
        self.assertEqual(seen["types"], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(seen["calls"], [["get_weather", self.WEATHER], ["now", {}]])
        self.assertEqual(seen["final"], seen["calls"])
        self.assertEqual(seen["stop"], "tool_use")
        self.assertEqual(seen["text"], "Let me look.")
        self.assertEqual(seen["thinking"], ["The user wants weather."])
        usage = seen["usage"]
        found = usage["input_tokens"] + usage["cache_read_input_tokens"]
        self.assertEqual(found, seen["count"])
        self.assertGreater(seen["cached"], 0.5 * seen["after"])
        self.assertEqual(seen["errors"]["model"], ["NotFoundError", 404])
        self.assertEqual(seen["errors"]["field"], ["BadRequestError", 400])

    def test_helpers_async_and_retries(self):
        keys = fixtures.MADE / "clients-keys.toml"
        fixtures.MADE.mkdir(parents=True, exist_ok=True)
        keys.write_text(
            '[[key]]\nname = "free"\nkey = "free-secret"\n'
            '[[key]]\nname = "slow"\nkey = "slow-secret"\nmax_concurrent = 1\n'
        )
        keys.chmod(0o600)
        seen = run_on_talker(HELPERS_SCRIPT, "21 C.", ("--api-keys", keys))
        self.assertEqual(seen["parsed"], [self.WEATHER, {}])
        self.assertEqual(seen["parsed_stream"], seen["parsed"])
        self.assertEqual(seen["parsed_responses"], [self.WEATHER])
        self.assertEqual(seen["runner"], ["tool_use", "text"])
        self.assertEqual(seen["runner_said"], "21 C.")
        self.assertEqual(seen["beta_count"], seen["count"])
        self.assertEqual(seen["input_count"], seen["count"])
        self.assertEqual(seen["claude_models"], ["talker"])
        self.assertEqual(seen["raw"][0], seen["raw"][1])
        self.assertTrue(seen["claude_id"])
        self.assertEqual(seen["lengths"], [20, 300, 300])
        self.assertEqual(seen["late"], "APITimeoutError")
        self.assertEqual(seen["format"], "InternalServerError")
        self.assertLess(seen["format_s"], 1.0)
        self.assertGreaterEqual(seen["wait_s"], 1)
        self.assertGreaterEqual(seen["retries"], 1)
        (said,) = seen["async"]
        self.assertTrue(said.startswith("Let me look."), said)


if __name__ == "__main__":
    harness.main("e2e_clients_test")

#!/usr/bin/env python3
"""Fresh random requests through `artery codec render` and through the official package.

  tests/codec/recipe_compare.py build/release/artery [CASES] [SEED] [TOKENIZER.json]

Needs a Python that has deepseek-recipe 0.2.0. Requests of the three APIs are made at random, many of
them bent out of shape; prompts, special ranges, token ids, options and errors must be equal (of bodies
that cannot be read, that they cannot). Prints what differs and the counts; exit code 1 if anything does.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import deepseek_recipe as recipe

ROOT = Path(__file__).resolve().parent.parent.parent
SNIPPETS = (
    "weather city search json JSON data naïve café 你好 世界 こんにちは привет 😀 👩‍💻 1000 3.14 $5 100% foo_bar HTTP/2 "
    "<think> </think> ｜DSML｜ <｜User｜> <｜Assistant｜> <｜System｜> <｜image｜> <｜ref｜> <｜/ref｜> <｜box｜> <｜end▁of▁sentence｜> "
    "<tool_result> </tool_result> x=[1,2] \" \\ { } \n \n\n \t"
).split(" ")
NUMBERS = ["0", "1", "-3", "1.5", "1e-7", "1.0", "1e16", "12345678901234567890", "1e22", "-0", "0.00001", "123456789.123"]
MODELS = {"v4": "DeepSeek-V4-Pro", "v4.1": "DeepSeek-V4.1-Flash"}
JUNK = [None, True, 3, -1, 1.5, "x", "", [], {}, ["a"], {"a": 1}, [None], "none", "auto", 10**30]


class Raw(float):
    """A number with its own spelling."""

    def __new__(cls, text):
        self = super().__new__(cls, float(text))
        self.text = text
        return self


def dump(value):
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.calls = 0

    def chance(self, p):
        return self.rng.random() < p

    def text(self, most=8):
        return self.rng.choice(["", " ", "\n"]).join(self.rng.choice(SNIPPETS) for _ in range(self.rng.randint(0, most)))

    def value(self, depth=2):
        r = self.rng.random()
        if depth == 0 or r < 0.3:
            return self.text(3)
        if r < 0.5:
            return Raw(self.rng.choice(NUMBERS))
        if r < 0.6:
            return self.rng.choice([None, True, False])
        if r < 0.75:
            return [self.value(depth - 1) for _ in range(self.rng.randint(0, 3))]
        return self.object(depth - 1)

    def object(self, depth=2):
        return {self.text(2): self.value(depth) for _ in range(self.rng.randint(0, 3))}

    def schema(self, depth=2):
        r = self.rng.random()
        described = {"description": self.text(4)} if self.chance(0.3) else {}
        if depth == 0 or r < 0.5:
            kind = self.rng.choice(["string", "integer", "number", "boolean", "null"])
            more = {}
            if kind in ("integer", "number") and self.chance(0.3):
                more = {self.rng.choice(["minimum", "maximum", "default", "multipleOf"]): Raw(self.rng.choice(NUMBERS))}
            if kind == "string" and self.chance(0.3):
                more = self.rng.choice([{"enum": ["a", "b"]}, {"pattern": "^a"}, {"format": "email"}, {"minLength": 1}])
            return {"type": kind, **more, **described}
        if r < 0.75:
            return self.object_schema(depth - 1) | described
        if r < 0.85:
            return {"type": "array", "items": self.schema(depth - 1), **described}
        if r < 0.95:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]}
        return self.rng.choice([{"type": ["string", "null"]}, {"$ref": "#"}, {}, True, {"enum": [1]}, {"allOf": [{}]}])

    def object_schema(self, depth=2):
        properties = {self.rng.choice(["a", "b", "city", "é"]): self.schema(depth) for _ in range(self.rng.randint(0, 3))}
        schema = {"type": "object", "properties": properties}
        if self.chance(0.4):
            schema["required"] = self.rng.sample(list(properties), self.rng.randint(0, len(properties)))
        if self.chance(0.3):
            schema["additionalProperties"] = self.rng.choice([False, False, True])
        return dict(self.rng.sample(list(schema.items()), len(schema))) if self.chance(0.2) else schema

    def ids(self, count):
        self.calls += 1
        return [f"call_{self.rng.randint(0, 999)}_{self.calls}_{i}" for i in range(count)]

    def function(self, name):
        tool = {"name": name}
        if self.chance(0.8):
            tool["description"] = self.text()
        if self.chance(0.9):
            tool["parameters"] = self.object_schema()
        if self.chance(0.2):
            tool["strict"] = self.rng.choice([True, True, False, None])
        return tool

    def functions(self):
        names = self.rng.sample(["f", "g", "get_weather", "a-b", "T1"], self.rng.choice([0, 0, 1, 2, 3]))
        strict = self.chance(0.15)
        tools = [self.function(name) for name in names]
        for tool in tools if strict else []:
            tool["strict"] = True
        return tools

    def image_url(self):
        return self.rng.choice(["https://e.x/a.png", "data:image/png;base64,aaaa", "ftp://x", "HTTP://E"])

    # Chat Completions

    def chat_content(self):
        if self.chance(0.7):
            return self.text()
        parts = []
        for _ in range(self.rng.randint(0, 3)):
            image = {"url": self.image_url(), "detail": self.rng.choice(["low", "high", "auto"])}
            parts.append({"type": "text", "text": self.text()} if self.chance(0.7) else {"type": "image_url", "image_url": image})
        return parts

    def chat(self):
        messages = []
        for _ in range(self.rng.randint(1, 5)):
            role = self.rng.choice(["system", "user", "user", "assistant", "assistant", "latest_reminder"])
            if role == "latest_reminder":
                messages.append({"role": role, "content": self.text()})
            elif role != "assistant":
                messages.append({"role": role, "content": self.chat_content()})
            else:
                messages += self.chat_answer()
        request = {"messages": messages}
        tools = self.functions()
        if tools:
            request["tools"] = [{"type": "function", "function": tool} for tool in tools]
        if self.chance(0.2):
            named = {"type": "function", "function": {"name": "f"}}
            request["tool_choice"] = self.rng.choice(["auto", "none", "required", named])
        if self.chance(0.2):
            schema = {"name": "n", "schema": self.object_schema(), "strict": self.chance(0.5)}
            forms = [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": schema}, {"type": "regex", "regex": "a+"}]
            request["response_format"] = self.rng.choice(forms)
        if self.chance(0.3):
            request["reasoning_effort"] = self.rng.choice(["none", "low", "medium", "high", "xhigh", "max"])
        if self.chance(0.2):
            request["stop"] = self.rng.choice(["END", ["a", "b"], [], "", None])
        if self.chance(0.1):
            request |= {"logprobs": self.chance(0.8), "top_logprobs": self.rng.choice([0, 3, 20, 21])}
        if self.chance(0.1):
            request["seed"] = self.rng.choice([0, 7, 2**63, 2**63 - 1])
        return request | self.common("max_tokens")

    def chat_answer(self):
        answer = {"role": "assistant", "content": self.text()}
        if self.chance(0.5):
            answer["reasoning_content"] = self.text()
        if self.chance(0.1):
            answer["prefix"] = self.chance(0.7)
        if self.chance(0.6):
            return [answer]
        ids = self.ids(self.rng.randint(1, 3))
        answer["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": self.arguments()}} for i in ids
        ]
        results = [{"role": "tool", "tool_call_id": i, "content": self.chat_content()} for i in ids]
        self.rng.shuffle(results)
        return [answer] + (results if self.chance(0.95) else results[1:])

    def arguments(self):
        if self.chance(0.85):
            return dump(self.object())
        return self.rng.choice(["", "null", "[1]", "{", '"x"', '{"a":1,"a":2}', "{} ", '{"a":"\\ud800"}'])

    # Messages

    def blocks(self, images=True):
        made = []
        for _ in range(self.rng.randint(0, 3)):
            source = self.rng.choice(
                [{"type": "url", "url": self.image_url()}, {"type": "base64", "media_type": "image/png", "data": self.rng.choice(["aaaa", "YQ", "YQ=="])}]
            )
            document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
            other = self.rng.choice([document, {"type": "image", "source": source}]) if images else document
            made.append({"type": "text", "text": self.text()} if self.chance(0.75) else other)
        return made

    def messages(self):
        tools = self.functions()
        names = [tool["name"] for tool in tools]
        messages = []
        for _ in range(self.rng.randint(1, 4)):
            role = self.rng.choice(["user", "user", "assistant", "assistant", "system"])
            content = self.text() if self.chance(0.4) else self.blocks(role != "assistant" or self.chance(0.1))
            if role == "system" and names and isinstance(content, list) and self.chance(0.4):
                content.append({"type": "tool_addition", "tool": {"type": "tool_reference", "name": self.rng.choice(names + ["zz"])}})
            if role != "assistant" or isinstance(content, str):
                messages.append({"role": role, "content": content})
            else:
                messages += self.messages_answer(content, names)
        request = {"messages": messages}
        if tools:
            request["tools"] = [self.messages_tool(tool) for tool in tools]
        if self.chance(0.3):
            request["system"] = self.rng.choice([self.text(), [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(0, 3))]])
        if self.chance(0.2):
            request["tool_choice"] = self.rng.choice([{"type": t} for t in ("auto", "any", "none")] + [{"type": "tool", "name": "f"}])
        if self.chance(0.3):
            request["output_config"] = {"effort": self.rng.choice(["low", "high", "max", "none", "xhigh"])}
        if self.chance(0.1):
            request["stop_sequences"] = self.rng.choice([["a"], [], [""]])
        return request | self.common("max_tokens")

    def messages_tool(self, tool):
        made = {"name": tool["name"], "input_schema": tool.get("parameters", {"type": "object"})}
        if "description" in tool:
            made["description"] = tool["description"]
        if self.chance(0.2):
            made["defer_loading"] = True
        if self.chance(0.03):
            made["type"] = self.rng.choice(["custom", "web_search_20250305"])
        return made

    def messages_answer(self, content, names):
        if self.chance(0.5):
            content.insert(0, {"type": "thinking", "thinking": self.text(), "signature": "s"})
        if self.chance(0.5):
            return [{"role": "assistant", "content": content}]
        ids = self.ids(self.rng.randint(1, 3))
        content += [{"type": "tool_use", "id": i, "name": "f", "input": self.object()} for i in ids]
        results = []
        for i in ids:
            parts = self.blocks()
            if names and self.chance(0.2):
                parts.append({"type": "tool_reference", "tool_name": self.rng.choice(names)})
            results.append({"type": "tool_result", "tool_use_id": i, "content": self.rng.choice([self.text(), parts])})
        self.rng.shuffle(results)
        if self.chance(0.5):
            results.append({"type": "text", "text": self.text()})
        return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]

    # Responses

    def item_parts(self):
        if self.chance(0.6):
            return self.text()
        image = {"type": "input_image", "image_url": self.image_url()}
        return [{"type": "input_text", "text": self.text()} if self.chance(0.8) else image for _ in range(self.rng.randint(0, 3))]

    def responses(self):
        if self.chance(0.2):
            items = self.text()
        else:
            items = []
            for _ in range(self.rng.randint(1, 5)):
                items += self.responses_items()
        request = {"input": items}
        tools = [{"type": "function", **tool} for tool in self.functions()]
        if self.chance(0.15):
            space = {"type": "namespace", "name": "ns", "description": self.text(2), "tools": [{"type": "function", **self.function("f")}]}
            tools.append(space)
        if self.chance(0.1):
            tools.append(self.rng.choice([{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "tool_search", "execution": "client"}]))
        if tools:
            request["tools"] = tools
        if self.chance(0.3):
            request["instructions"] = self.text()
        if self.chance(0.4):
            request["reasoning"] = {"effort": self.rng.choice(["none", "minimal", "low", "high", "xhigh", None])}
        if self.chance(0.15):
            request["tool_choice"] = self.rng.choice(["auto", "none", "required", {"type": "function", "name": "f"}])
        if self.chance(0.15):
            form = {"type": "json_schema", "name": "n", "schema": self.object_schema(), "strict": self.chance(0.5)}
            request["text"] = {"format": self.rng.choice([{"type": "text"}, {"type": "json_object"}, form])}
        return request | self.common("max_output_tokens")

    def responses_items(self):
        r = self.rng.random()
        if r < 0.4:
            return [{"role": self.rng.choice(["user", "user", "system", "developer"]), "content": self.item_parts()}]
        if r < 0.6:
            return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": self.text()}]}]
        if r < 0.75:
            return [{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": self.text()}]}]
        ids = self.ids(self.rng.randint(1, 3))
        calls = [{"type": "function_call", "call_id": i, "name": "f", "arguments": self.arguments()} for i in ids]
        outputs = [{"type": "function_call_output", "call_id": i, "output": self.item_parts()} for i in ids]
        self.rng.shuffle(outputs)
        return calls + outputs

    # All of them

    def common(self, length):
        request = {}
        if self.chance(0.3):
            request["thinking"] = {"type": self.rng.choice(["enabled", "disabled", "adaptive"])}
        if self.chance(0.2):
            request["temperature"] = Raw(self.rng.choice(["0", "0.3", "1.0", "2", "2.1"]))
        if self.chance(0.2):
            request["top_p"] = Raw(self.rng.choice(["0.1", "0.96", "1", "1.1", "0"]))
        if self.chance(0.3):
            request[length] = self.rng.choice([1, 100, 393216, 393217, 0])
        if self.chance(0.2):
            request["stream"] = self.chance(0.5)
        return request

    def bend(self, request):
        """One value somewhere becomes another, goes, or comes twice."""
        places = []

        def walk(node):
            for key in node if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                if isinstance(node[key], (dict, list)):
                    walk(node[key])

        walk(request)
        node, key = self.rng.choice(places)
        if self.chance(0.3):
            del node[key]
        else:
            node[key] = self.rng.choice(JUNK)

    def case(self, index):
        api = self.rng.choice(["chat", "messages", "responses"])
        request = {"model": MODELS[self.rng.choice(["v4", "v4.1"])], **getattr(self, api)()}
        if self.chance(0.2):
            self.bend(request)
        options = {}
        if self.chance(0.15):
            options["default_thinking_mode"] = False
        if self.chance(0.2):
            options["reasoning_content_behavior"] = "Reject"
        if self.chance(0.1):
            options["messages_web_search"] = "Drop"
        return {"id": index, "api": api, "options": options, "body_text": dump(request), "resolve": [[100, 1048576], [1000, 64]]}


REQUESTS = {"chat": recipe.ChatCompletionRequest, "messages": recipe.MessagesRequest, "responses": recipe.ResponsesRequest}


class Package:
    def __init__(self, tokenizer):
        loaded = recipe.Tokenizer.from_file(str(tokenizer))
        v4, v41 = recipe.ModelVersion.DeepseekV4Pro, recipe.ModelVersion.DeepseekV41Flash
        self.encodings = {
            v4: ("v4", recipe.DeepseekV4Encoding().with_tokenizer(loaded)),
            v41: ("v4.1", recipe.DeepseekV41Encoding().with_tokenizer(loaded)),
        }

    def options(self, given):
        options = recipe.ConversionOptions(default_thinking_mode=given.get("default_thinking_mode", True))
        if "reasoning_content_behavior" in given:
            options = options.with_reasoning_content_behavior(recipe.ReasoningContentBehavior.Reject)
        if "messages_web_search" in given:
            options = options.with_messages_web_search(recipe.WebSearchBehavior.Drop)
        return options

    def run(self, case):
        try:
            request = REQUESTS[case["api"]](case["body_text"])
        except ValueError:
            return {"error": {"stage": "parse"}}
        try:
            converted = request.convert(self.options(case["options"]))
        except recipe.ConversionError as error:
            return {"error": {"stage": "convert", "status": error.status_code, "body": error.body}}
        version, encoding = next(v for k, v in self.encodings.items() if k == converted.model_version)
        rendered = encoding.render_conversation(converted.conversation)
        inference, parsing = converted.inference_options, converted.parsing_options
        constraint = inference.output_constraint
        return {
            "model_version": version,
            "stream": converted.stream,
            "prompt": rendered.prompt,
            "special_ranges": [list(r) for r in rendered.special_ranges],
            "ids": encoding.encode(converted.conversation),
            "inference": {
                "max_tokens": inference.max_tokens,
                "temperature": inference.temperature,
                "top_p": inference.top_p,
                "logprobs": inference.logprobs,
                "top_logprobs": inference.top_logprobs,
                "seed": inference.seed,
                "output_constraint": constraint and {"kind": constraint.kind, "schema": constraint.schema},
            },
            "resolve_max_tokens": [[*asked, self.resolve(converted, *asked)] for asked in case["resolve"]],
            "stop_sequences": parsing.stop_sequences,
            "parse": [parsing.parse_tool_calls, parsing.starts_in_tool_calls, parsing.parse_json_output],
            "paths": [image.path for image in rendered.image_sources],
        }

    def resolve(self, converted, prompt_tokens, limit):
        try:
            return converted.resolve_max_tokens(prompt_tokens, limit)
        except recipe.ConversionError as error:
            return {"status": error.status_code, "body": error.body}


def comparable(answer):
    """Our line in the form of Package.run()."""
    if "error" in answer:
        error = answer["error"]
        return {"error": {"stage": "parse"}} if error.get("stage") == "parse" else {"error": error}
    result = answer["result"]
    parsing = result["parsing"]
    fields = ("model_version", "stream", "prompt", "special_ranges", "ids", "inference", "resolve_max_tokens")
    return {
        **{field: result.get(field) for field in fields},
        "stop_sequences": parsing["stop_sequences"],
        "parse": [parsing[k] for k in ("parse_tool_calls", "starts_in_tool_calls", "parse_json_output")],
        "paths": [image["path"] for image in result["image_sources"]],
    }


def settled(outcome):
    """Which of several unanswered calls an error names is chance in the package."""
    error = outcome.get("error", {})
    if "No tool output found for tool call " in error.get("body", ""):
        error["body"] = re.sub(r"(for tool call )[^.]*", r"\1X", error["body"])
    return outcome


def show_difference(ours, theirs):
    """Of the first field that differs, what stands around the first difference."""
    fields = ("error", "prompt", *sorted(set(ours) | set(theirs)))
    key = next(k for k in fields if ours.get(k) != theirs.get(k))
    one, other = str(ours.get(key)), str(theirs.get(key))
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    begin = max(0, at - 60)
    print(f"  {key}\n    ours    {one[begin : at + 200]!r}\n    package {other[begin : at + 200]!r}")


def main(arguments):
    if not arguments:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    count = int(arguments[1]) if len(arguments) > 1 else 20000
    seed = int(arguments[2]) if len(arguments) > 2 else random.SystemRandom().randrange(10**9)
    source = arguments[3] if len(arguments) > 3 else ROOT / "build/models/deepseek-v4-tokenizer.json"
    maker = Maker(random.Random(seed))
    cases = [maker.case(index) for index in range(count)]
    with tempfile.TemporaryDirectory() as work:
        tokenizer = Path(work) / "tokenizer.json"
        text = Path(source).read_text(encoding="utf-8")
        tokenizer.write_text(text.replace("<｜place▁holder▁no▁799｜>", "<｜System｜>"), encoding="utf-8")
        lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
        command = [arguments[0], "codec", "render", "--tokenizer", str(tokenizer)]
        answers = subprocess.run(command, input=lines, check=True, capture_output=True, text=True).stdout
        package = Package(tokenizer)
        differing = {}
        outcomes = {}
        for case, line in zip(cases, answers.split("\n")[:-1], strict=True):
            ours, theirs = settled(comparable(json.loads(line))), settled(package.run(case))
            kind = (case["api"], theirs["error"]["stage"] if "error" in theirs else "result")
            outcomes[kind] = outcomes.get(kind, 0) + 1
            if ours == theirs:
                continue
            differing[kind] = differing.get(kind, 0) + 1
            if sum(differing.values()) <= 10:
                print(f"case {case['id']} {case['api']} {case['options']}: {case['body_text'][:1500]}")
                show_difference(ours, theirs)
    for kind, total in sorted(outcomes.items()):
        print(f"{kind[0]:10} {kind[1]:8} {total - differing.get(kind, 0)} of {total} equal")
    print(f"seed {seed}: {count - sum(differing.values())} of {count} equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

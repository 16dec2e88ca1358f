"""Starts the real program and talks to it over raw sockets.

ARTERY_BIN names the program (else the newest build/*/artery), ARTERY_MODELS the weights (else
build/models). Time limits are wide: they catch hangs, not slowness.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fixtures import ROOT
from wire import HANG_S, Connection, Stream, merge

LONG = os.environ.get("ARTERY_TEST_LONG") == "1"


def artery_bin():
    given = os.environ.get("ARTERY_BIN")
    if given:
        return given
    built = sorted(ROOT.glob("build/*/artery"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise unittest.SkipTest("no artery program: set ARTERY_BIN or build it")
    return str(built[-1])


def clean_environment():
    """Flags may be set by the environment too; those of the caller are not a test's. Servers keep no
    KV store unless their test names one: the user's folder is not the tests' place."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARTERY_")}
    return {**env, "ARTERY_KV_DIR": "none"}


def wait_until(condition, seconds=60, every=0.01):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(every)
    return condition()


class Server:
    """`artery serve` on a free port. Leaving it as a context stops it and checks how it ended."""

    def __init__(self, model, *flags, ready=True, tls=None, before=()):
        """`tls`: the ssl context that clients use. `before`: a command to start it under."""
        self.tls = tls
        command = [*before, artery_bin(), "serve", str(model), "--port", "0", *map(str, flags)]
        self.lines = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            start_new_session=True,
        )
        self.pid = self.process.pid
        self._port_known = threading.Event()
        self.port = None
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._port_known.wait(HANG_S) or self.port is None:
            self.kill()
            raise AssertionError(f"{command} printed no port:\n{self.log}")
        if ready and not wait_until(self._is_ready, HANG_S):
            self.kill()
            raise AssertionError(f"{command} was not ready in {HANG_S} s:\n{self.log}")

    def _read_log(self):
        for raw in self.process.stderr:
            line = raw.decode("utf-8", errors="replace").rstrip("\n")
            self.lines.append(line)
            found = re.search(r"listening on https?://\S+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self._port_known.set()
        self._port_known.set()

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log}")
        try:
            return self.get("/health").status == 200
        except ConnectionError:
            return False  # it is ending; the next turn says how

    @property
    def log(self):
        return "\n".join(self.lines[-40:])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.kill()
        else:
            self.stop()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait(self, seconds=HANG_S):
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def stop(self, code=143):
        """SIGTERM, the exit code, and nothing left of its session."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            found = self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end the server:\n{self.log}") from None
        assert found == code, f"exit code {found}, not {code}:\n{self.log}"
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return
        raise AssertionError(f"a process of session {self.pid} is left")

    def ask(self, method, path, body=None, headers=(), timeout=HANG_S):
        with Connection(self.port, timeout, self.tls) as connection:
            connection.request(method, path, body, headers)
            return connection.response(method)

    def get(self, path, headers=()):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, headers=()):
        return self.ask("POST", path, body, headers)

    def answer(self, path, body):
        """The JSON of a request that must succeed."""
        response = self.post(path, body)
        assert response.status == 200, f"{str(body)[:300]}\n{response}\n{self.log}"
        return response.json

    def answer_get(self, path):
        response = self.get(path)
        assert response.status == 200, response
        return response.json

    def complete(self, prompt, **body):
        return self.answer("/v1/completions", {"prompt": prompt, **body})

    def chat(self, messages, **body):
        return self.answer("/v1/chat/completions", {"messages": messages, **body})

    def stream(self, path, body):
        with Stream(self.port, path, body, tls=self.tls) as stream:
            return list(stream)

    def both(self, path, body):
        """The same request without and with stream, the second merged to the first one's form."""
        with_usage = {**body, "stream_options": {"include_usage": True}}
        return self.answer(path, body), merge(self.stream(path, with_usage))

    def tokenize(self, text, **body):
        body = {"prompt": text, "add_special_tokens": False, **body}
        return self.answer("/tokenize", body)["tokens"]

    def status(self):
        return self.get("/artery/status").json

    def metric(self, name):
        lines = self.get("/metrics").body.decode().splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(name + "{")]
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def await_metric(self, name, value, seconds=10):
        """Metrics follow an answer a moment later."""
        found = wait_until(lambda: self.metric(name) == value, seconds)
        assert found, f"{name} is {self.metric(name)}, not {value}"

    def resident_bytes(self):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def cpu_seconds(self):
        """CPU time of its threads, which a busy machine does not stretch as it does wall time."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass  # it ended meanwhile
        return total * 1e-9

    def idle(self):
        status = self.status()
        return status["running"] == 0 and status["waiting"] == 0


def run_artery(*arguments, seconds=HANG_S):
    """A verb that ends by itself: (exit code, standard output, standard error)."""
    done = subprocess.run(
        [artery_bin(), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean_environment(),
        timeout=seconds,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Pulse:
    """Asks a path again and again in a thread of its own, as a probe does; keeps the seconds."""

    def __init__(self, server, path, every=0.02, headers=()):
        self.server, self.path, self.every, self.headers = server, path, every, headers
        self.seconds, self.statuses = [], set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.is_set():
            began = time.monotonic()
            response = self.server.get(self.path, self.headers)
            self.seconds.append(time.monotonic() - began)
            self.statuses.add(response.status)
            self._stop.wait(self.every)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def quantile(self, share):
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def at_once(jobs):
    """Runs functions in threads of their own and gives their results in order."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def token_logprobs(answer):
    """[(token, logprob)] of the first choice of either API."""
    logprobs = answer["choices"][0]["logprobs"]
    if "content" in logprobs:
        return [(entry["token"], entry["logprob"]) for entry in logprobs["content"]]
    return list(zip(logprobs["tokens"], logprobs["token_logprobs"]))


class Case(unittest.TestCase):
    maxDiff = 4000

    def assert_refused(self, response, status, param=None, code=None):
        """An OpenAI error object with this status, naming the field."""
        self.assertEqual(response.status, status, response)
        error = response.error
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertTrue(error["message"])
        if param is not None:
            self.assertEqual(error["param"], param, error)
            self.assertIn(param.split("[")[0].split(".")[0], error["message"])
        if code is not None:
            self.assertEqual(error["code"], code)

    def assert_same_answer(self, whole, streamed):
        """Equal but for id and time, and for tokens the second one found in the cache."""
        left, right = dict(whole), dict(streamed)
        for answer in (left, right):
            answer.pop("id"), answer.pop("created")
            counts = answer.pop("usage")
            answer["counts"] = [counts["prompt_tokens"], counts["completion_tokens"]]
        self.assertEqual(left, right)

    def assert_usage(self, usage):
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        hit, miss = usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]
        self.assertEqual(hit + miss, usage["prompt_tokens"])
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], hit)
        self.assertLess(hit, usage["prompt_tokens"])


class SharedServer(Case):
    """Tests of one class against one server: set `model` (a function) and `flags`."""

    model = None
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model(), *cls.flags)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        if self.server.process.poll() is not None:
            self.fail(f"the server ended with {self.server.process.returncode}:\n{self.server.log}")


class _Result(unittest.TextTestResult):
    """Writes the cases in GoogleTest's XML form too, so that the project's summary counts them."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.suite = ET.Element("testsuite", name="e2e")

    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self.began:.1f} s")

    def _case(self, test, child=None, text=""):
        name = test.id().split(".", 1)[-1]
        kind, _, method = name.rpartition(".")
        case = ET.SubElement(
            self.suite, "testcase", classname=kind or "e2e", name=method, status="run"
        )
        if child:
            ET.SubElement(case, child, message=text)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._case(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._case(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._case(test, "failure", str(err[1])[:400])

    def addError(self, test, err):
        super().addError(test, err)
        self._case(test, "failure", str(err[1])[:400])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._case(subtest, "failure", str(err[1])[:400])


def main(name):
    """Runs the calling file's tests; `name` is the ctest name, for the XML report."""
    runner = unittest.TextTestRunner(verbosity=2, resultclass=_Result)
    program = unittest.main(module="__main__", testRunner=runner, exit=False)
    result = program.result
    target = os.environ.get("GTEST_OUTPUT", "")
    if target.startswith("xml:"):
        path = target[4:]
        path = Path(path) / f"{name}.xml" if path.endswith("/") else Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(result.suite).write(path, encoding="utf-8", xml_declaration=True)
    print(
        f"{name}: {result.testsRun} run, {len(result.failures) + len(result.errors)} failed, "
        f"{len(result.skipped)} skipped",
        flush=True,
    )
    sys.exit(0 if result.wasSuccessful() else 1)

"""HTTP/1.1 and server-sent events over a socket, read as strictly as they are written."""

import json
import socket
import struct
import time

HANG_S = 180


def _no_constant(name):
    raise ValueError(f"{name} is not JSON")


def strict_json(raw):
    """Bytes to a value; NaN, Infinity and broken UTF-8 are errors, unlike json.loads."""
    return json.loads(raw.decode("utf-8", errors="strict"), parse_constant=_no_constant)


class Response:
    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return strict_json(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:600]!r}"


class Connection:
    """One HTTP/1.1 connection, byte by byte as written and read."""

    def __init__(self, port, timeout=HANG_S, tls=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.input = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with a TCP reset instead of a FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def send(self, raw):
        self.socket.sendall(raw)

    def request(self, method, path, body=None, headers=()):
        self.send(request_bytes(method, path, body, headers))

    def _fill(self):
        more = self.socket.recv(1 << 16)
        if not more:
            raise ConnectionError(f"the connection ended after {self.input[-200:]!r}")
        self.input += more

    def line(self):
        while b"\r\n" not in self.input:
            self._fill()
        line, self.input = self.input.split(b"\r\n", 1)
        return line

    def exactly(self, count):
        while len(self.input) < count:
            self._fill()
        raw, self.input = self.input[:count], self.input[count:]
        return raw

    def head(self):
        version, status = self.line().split(b" ")[:2]
        assert version == b"HTTP/1.1", version
        headers = {}
        while line := self.line():
            name, value = line.decode("latin-1").split(":", 1)
            headers[name.lower()] = value.strip()
        return Response(int(status), headers)

    def chunks(self):
        """The body of a chunked response, piece by piece."""
        while size := int(self.line(), 16):
            piece = self.exactly(size + 2)
            assert piece.endswith(b"\r\n"), piece
            yield piece[:-2]
        assert self.line() == b"", "no trailers are sent"

    def response(self, method="GET"):
        response = self.head()
        if method == "HEAD" or response.status in (100, 204):
            return response
        if response.headers.get("transfer-encoding") == "chunked":
            response.body = b"".join(self.chunks())
        else:
            response.body = self.exactly(int(response.headers["content-length"]))
        return response

    def ended(self):
        """True when the other side has closed and sent nothing more."""
        try:
            return self.input == b"" and self.socket.recv(1) == b""
        except ConnectionError:
            return True


def request_bytes(method, path, body=None, headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    if body is not None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines.append(f"Content-Length: {len(raw)}")
        if not any(name.lower() == "content-type" for name, _ in headers):
            lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (raw if body is not None else b"")


class Stream:
    """A streamed answer. Every line is checked as it comes: UTF-8, strict JSON, [DONE] last."""

    def __init__(self, port, path, body, headers=(), tls=None):
        self.began = time.monotonic()
        self.connection = Connection(port, tls=tls)
        self.connection.request("POST", path, {**body, "stream": True}, headers)
        self.head = self.connection.head()
        self.head_seconds = time.monotonic() - self.began
        self.comments = []  # seconds after the request
        self.done = False
        if self.head.status != 200:
            self.head.body = self.connection.exactly(int(self.head.headers["content-length"]))
            raise AssertionError(f"no stream: {self.head}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def _lines(self):
        rest = b""
        for piece in self.connection.chunks():
            rest += piece
            while b"\n" in rest:
                line, rest = rest.split(b"\n", 1)
                yield line
        assert rest == b"", f"the stream ends inside a line: {rest!r}"

    def __iter__(self):
        for line in self._lines():
            assert not self.done or line == b"", f"after [DONE]: {line!r}"
            if line.startswith(b":"):
                self.comments.append(time.monotonic() - self.began)
            elif line == b"data: [DONE]":
                self.done = True
            elif line:
                assert line.startswith(b"data: "), line
                yield strict_json(line[6:])
        assert self.done, "the stream ended without data: [DONE]"


def merge(chunks):
    """Chunks of a stream in the form of the non-streamed answer."""
    answer = None
    choices = {}
    for chunk in chunks:
        assert "error" not in chunk, chunk
        answer = answer or {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        answer["object"] = chunk["object"].replace(".chunk", "")
        answer.update((k, chunk[k]) for k in ("usage", "timings") if chunk.get(k) is not None)
        for part in chunk["choices"]:
            _merge_choice(choices.setdefault(part["index"], {"index": part["index"]}), part)
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return answer


def _merge_choice(choice, part):
    assert choice.get("finish_reason") is None, f"a chunk after the finish: {part}"
    if "delta" in part:
        message = choice.setdefault("message", {"role": None, "content": "", "refusal": None})
        message["role"] = part["delta"].get("role", message["role"])
        message["content"] += part["delta"].get("content") or ""
    else:
        choice["text"] = choice.get("text", "") + part["text"]
    choice["finish_reason"] = part["finish_reason"]
    choice["stop_reason"] = part.get("stop_reason")
    if part["logprobs"] is None:
        choice.setdefault("logprobs", None)
    elif choice.get("logprobs") is None:
        choice["logprobs"] = part["logprobs"]
    else:
        for name, values in part["logprobs"].items():
            choice["logprobs"][name] += values

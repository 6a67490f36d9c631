"""An upstream that breaks its answers in every way, and a gateway in front of it.

What is asked for stands in the last message: `FAULT`, or `FAULT/K` for one that strikes after K bytes of the answer's body. `usage {…}` is
no fault: the answer reports that usage; its `served_by` is the tier, in the place of the one that was asked for.
"""

import gzip
import json
import socket
import struct
import threading
from pathlib import Path

import httpx
from conftest import START_SECONDS_MAX, Gateway, wait_for
from ports import free_port

MODEL = "faulty/chat"
# Nobody asks for it, but a catalogue has one.
EMBED = "faulty/embed"
TEXTS = ["One", " two", " three", " four"]
# More than any call in the tests may have.
LARGE_USAGE = {"prompt_tokens": 100_000, "completion_tokens": 1, "total_tokens": 100_001}
# What `long` begins with: more than the model's maximum.
LONG_WORDS = 3000
IMPOSSIBLE_USAGE = {"prompt_tokens": -1, "completion_tokens": 0.5, "total_tokens": 1}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
# Of the list price, as decimal text: the provider's with 15 %.
PROMPT_PRICE, COMPLETION_PRICE = "0.00000115", "0.0000023"
# Words that only the upstream says.
SECRET = "sk-upstream-secret"
# How long the gateway waits for a silent upstream.
SILENCE_MS_MAX = 500
# Where it must not give up.
PATIENT = {"idle_ms": 20_000, "first_byte_ms": 20_000}


def chunk(choices: list, **more) -> dict:
    return {"id": "chatcmpl-f", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": choices, **more}


def delta(text: str) -> dict:
    return chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])


def event(data) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


FINISH = chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
EVENTS = [*map(delta, TEXTS), FINISH, chunk([], usage=USAGE), "[DONE]"]
STREAM = b"".join(map(event, EVENTS))
ANSWER = {
    "id": "chatcmpl-f",
    "object": "chat.completion",
    "created": 1,
    "model": "up",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(TEXTS)}, "finish_reason": "stop"}],
    "usage": USAGE,
}
WHOLE = json.dumps(ANSWER).encode()
ERROR = {"error": {"message": f"overloaded: {SECRET}", "type": "server_error", "code": 503}}
PAGE = f"<!doctype html><title>502 Bad Gateway</title><p>{SECRET}</p>".encode()


def head(content_type: str, *headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"content-type: {content_type}", *headers, "", ""]).encode()


def framed(body: bytes, sent: int) -> bytes:
    """The first bytes of a body that is one chunk; its end only with its last byte."""
    whole = sent >= len(body)
    return b"%x\r\n" % len(body) + body[:sent] + (b"\r\n0\r\n\r\n" if whole else b"")


class Upstream:
    """Listens until it is closed; each connection has a thread of its own."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.closing = threading.Event()
        # Calls so far; one client at a time asks.
        self.asked = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.closing.set()
        self.socket.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket):
        with connection:
            request = self._read(connection)
            if request is not None:
                self.asked += 1
                wish = request["messages"][-1]["content"]
                if isinstance(wish, list):
                    wish = "".join(part.get("text", "") for part in wish)
                if wish.startswith("usage "):
                    usage = json.JSONDecoder().raw_decode(wish.removeprefix("usage "))[0]
                    served_by = usage.pop("served_by", request.get("service_tier"))
                    self._report(connection, request.get("stream") is True, usage, served_by)
                    return
                fault, _, after = wish.partition("/")
                self._answer(connection, request.get("stream") is True, fault, int(after or 0))

    @staticmethod
    def _read(connection: socket.socket):
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := connection.recv(65536)):
                return None
            data += more
        header, _, body = data.partition(b"\r\n\r\n")
        # What has no body is not answered.
        if not any(line.lower().startswith(b"content-length:") for line in header.split(b"\r\n")):
            return None
        lengths = [line.split(b":")[1] for line in header.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < int(lengths[0]):
            body += connection.recv(65536)
        return json.loads(body)

    @staticmethod
    def _report(connection: socket.socket, streams: bool, usage: dict, tier: str | None):
        """An answer that is whole, with this usage, and served by this tier."""
        served = {"service_tier": tier} if tier else {}
        if streams:
            body, kind = b"".join(map(event, [*EVENTS[:5], chunk([], usage=usage) | served, "[DONE]"])), "text/event-stream"
        else:
            body, kind = json.dumps(ANSWER | {"usage": usage} | served).encode(), "application/json"
        connection.sendall(head(kind, f"content-length: {len(body)}", "connection: close") + body)

    def _answer(self, connection: socket.socket, streams: bool, fault: str, after: int):
        body, kind = (STREAM, "text/event-stream") if streams else (WHOLE, "application/json")
        chunked = head(kind, "transfer-encoding: chunked")
        if fault == "none":
            connection.sendall(chunked + framed(body, len(body)))
        elif fault in ("rejected", "overrun"):
            said = json.dumps(ANSWER | {"usage": IMPOSSIBLE_USAGE if fault == "rejected" else LARGE_USAGE}).encode()
            connection.sendall(head(kind, f"content-length: {len(said)}") + said)
        elif fault in ("slow", "long"):
            try:
                self._stream_slowly(connection, after, LONG_WORDS if fault == "long" else 0)
            except OSError:
                pass  # The gateway has gone.
        elif fault == "refused":
            connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
        elif fault == "busy":
            connection.sendall(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n")
        elif fault == "unauthorized":
            connection.sendall(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        elif fault == "no-usage":
            silent = b"".join(map(event, [*EVENTS[:5], "[DONE]"]))
            connection.sendall(chunked + framed(silent, len(silent)))
        elif fault == "cut":
            connection.sendall(chunked + framed(body, after))
        elif fault == "reset":
            # It may throw away what the gateway has not read yet, even the head.
            connection.sendall(chunked + framed(body, after))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault == "stall":
            connection.sendall(chunked + framed(body, after))
            self.closing.wait(60)
        elif fault == "long-length":
            connection.sendall(head(kind, f"content-length: {len(body) + 100}") + body[:after])
        elif fault == "short-length":
            connection.sendall(head(kind, f"content-length: {after}") + body)
        elif fault == "error":
            said = json.dumps(ERROR).encode()
            connection.sendall(head("application/json", f"content-length: {len(said)}") + said)
        elif fault == "error-event":
            said = b"".join(map(event, [*EVENTS[:after], ERROR]))
            connection.sendall(chunked + framed(said, len(said)))
        elif fault == "html":
            connection.sendall(head("text/html; charset=utf-8", f"content-length: {len(PAGE)}") + PAGE)
        elif fault == "disguised-html":
            connection.sendall(head(kind, f"content-length: {len(PAGE)}") + PAGE)
        elif fault == "gzip":
            packed = gzip.compress(body)
            connection.sendall(head(kind, "content-encoding: gzip", f"content-length: {len(packed)}") + packed)
        elif fault == "nothing":
            pass
        else:
            raise AssertionError(fault)


    def _stream_slowly(self, connection: socket.socket, events: int, at_once: int):
        connection.sendall(head("text/event-stream") + event(delta(" word")) * at_once)
        for _ in range(events):
            connection.sendall(event(delta(" word")))
            self.closing.wait(0.1)
        connection.sendall(b"".join(map(event, EVENTS[4:])))


class FaultyGateway(Gateway):
    """The real binary with that upstream as its only provider."""

    # Prices of further models, by id.
    pricing: dict = {}

    def __init__(self, directory: Path, wrapper: tuple = (), **settings):
        self.upstream = Upstream()
        self.conf = directory / "tollgate.yaml"
        self.wrapper = wrapper
        address = self._configure(directory, settings)
        self.base_url = f"http://{address}/api/v1"
        self.again(directory)

    def again(self, directory: Path | None = None):
        """Starts it: for the first time, or after it was killed."""
        self._start(directory or self.directory, "serve", "--conf", str(self.conf))

        def health():
            assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}; its log:\n{self.log_text()}"
            try:
                return httpx.get(f"{self.base_url}/llm/health", timeout=START_SECONDS_MAX).status_code
            except httpx.TransportError as error:
                return repr(error)

        wait_for(health, lambda answer: answer == 200, "a healthy gateway", START_SECONDS_MAX)

    def _configure(self, directory: Path, settings: dict) -> str:
        """Writes both files; where the gateway will listen."""
        ports = [free_port(), free_port()]
        names = "chat vision code fast router planner executor free slide slot_extract".split()
        model = {
            "id": MODEL,
            "name": "Faulty",
            "provider": "Faulty",
            "description": "Breaks",
            "context_length": 128000,
            "max_completion_tokens": 1000,
            "modality": "text->text",
            "pricing": {"prompt": "0.000001", "completion": "0.000002"},
            "tier": "free",
            "purposes": names,
            "targets": [{"provider": "faulty", "model": "up"}],
        }
        embed = model | {"id": EMBED, "modality": "text->embedding", "max_completion_tokens": 0, "purposes": ["embedding"]}
        more = [model | {"id": name, "pricing": pricing, "purposes": []} for name, pricing in self.pricing.items()]
        catalogue = {"models": [model, embed, *more], "purposes": dict.fromkeys(names, MODEL) | {"embedding": EMBED}}
        conf = {
            "listen": f"127.0.0.1:{ports[0]}",
            "admin_listen": f"127.0.0.1:{ports[1]}",
            "data_dir": str(directory / "data"),
            "store": f"sqlite://{directory / 'ledger.db'}",
            "catalogue": str(directory / "catalogue.yaml"),
            "access_log": str(directory / "access.log"),  # Nobody reads its standard output.
            "providers": {"faulty": {"base_url": f"http://127.0.0.1:{self.upstream.port}/v1"}},
            "timeouts": {"idle_ms": SILENCE_MS_MAX, "first_byte_ms": SILENCE_MS_MAX},
        }
        # JSON is YAML.
        (directory / "catalogue.yaml").write_text(json.dumps(catalogue))
        self.conf.write_text(json.dumps(conf | settings))
        return conf["listen"]

    def stop(self):
        try:
            super().stop()
        finally:
            self.upstream.close()

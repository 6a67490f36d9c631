"""Runs Schemathesis, with all its checks, over the descriptions that a gateway serves, to clients and to operators: the real binary, with a
provider that answers everything. Before, it is asked for lengths of time at both sides of each bound.

The provider is this file's own, since a real one refuses much of what a generator makes up, and what is asked here is what the gateway does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# Other suites run beside this one: none takes a port that it has drawn.
sys.path.insert(0, str(ROOT / "tests/clients"))
import lengths  # noqa: E402
from ports import free_port  # noqa: E402

START_SECONDS_MAX = 30
COMMAND_SECONDS_MAX = 20
# Test cases for each operation and phase, and the most seconds of each run of Schemathesis, of which there are up to three.
EXAMPLES = os.environ.get("TOLLGATE_API_EXAMPLES", "40")
RUN_SECONDS_MAX = int(os.environ.get("TOLLGATE_API_SECONDS", "240"))


class Provider(BaseHTTPRequestHandler):
    """Answers every request as a model would."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        if self.path.endswith("/embeddings"):
            inputs = body["input"] if isinstance(body["input"], list) and not isinstance(body["input"][0], int) else [body["input"]]
            data = [{"object": "embedding", "index": index, "embedding": [0.5]} for index in range(len(inputs))]
            self.say({"object": "list", "data": data, "model": "x", "usage": {"prompt_tokens": 3, "total_tokens": 3}})
        elif body.get("stream"):
            chunk = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
            last = {"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage}
            text = f"data: {json.dumps(chunk)}\n\ndata: {json.dumps(last)}\n\ndata: [DONE]\n\n"
            self.send(text.encode(), "text/event-stream")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
            self.say({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})

    def say(self, value):
        self.send(json.dumps(value).encode(), "application/json")

    def send(self, body, content_type):
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def binary() -> str:
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    return os.environ.get("TOLLGATE_BIN") or str(target / "debug" / "tollgate")


def configuration(folder: Path, provider: int, listen: int, **keys) -> Path:
    """Everything is affordable and allowed, so that an answer is about the request alone."""
    plenty = {"rpm": 1_000_000_000, "tpm": 1_000_000_000_000_000, "concurrency": 1_000_000, "monthly_quota": "9000000"}
    conf = {
        "listen": f"127.0.0.1:{listen}",
        "admin_listen": f"127.0.0.1:{free_port()}",
        "data_dir": str(folder),
        "store": f"sqlite://{folder}/ledger.db",
        "catalogue": str(folder / "catalogue.yaml"),
        "providers": {"main": {"base_url": f"http://127.0.0.1:{provider}/v1"}},
        "tiers": {"enterprise": plenty},
        # Schemathesis presents thousands of wrong keys.
        "auth_failures_per_minute": 1_000_000_000,
    } | keys
    # JSON is YAML too.
    purposes = ["chat", "vision", "code", "fast", "router", "planner", "executor", "embedding", "free", "slide", "slot_extract"]

    # What may be written to a cache has to have a price.
    writes = {"input_cache_write": "0", "input_cache_write_1h": "0"}

    def model(name, modality, its_purposes, prices):
        return {
            "id": f"test/{name}", "name": name, "provider": "Test", "description": "", "context_length": 1000, "max_completion_tokens": 10,
            "modality": modality, "pricing": {"prompt": "0", "completion": "0"} | prices, "tier": "free", "purposes": its_purposes,
            "targets": [{"provider": "main", "model": name}],
        }  # fmt: skip

    others = [purpose for purpose in purposes if purpose != "embedding"]
    models = [model("chat", "text+image->text", others, writes), model("embed", "text->embedding", ["embedding"], {})]
    defaults = {purpose: "test/embed" if purpose == "embedding" else "test/chat" for purpose in purposes}
    (folder / "catalogue.yaml").write_text(json.dumps({"models": models, "purposes": defaults}))
    path = folder / "tollgate.yaml"
    path.write_text(json.dumps(conf))
    return path


def command(conf: Path, *words: str):
    done = subprocess.run([binary(), *words, "--conf", conf, "--json"], capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=True)
    return json.loads(done.stdout) if done.stdout.strip() else None


def wait_until_healthy(base_url: str, gateway: subprocess.Popen):
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"{base_url}/llm/health", timeout=5):
                return
        except OSError as error:
            if gateway.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the gateway does not answer: {error}")
            time.sleep(0.05)


@contextmanager
def running(**keys):
    """A gateway with these keys in its configuration, below a folder of its own; it is stopped at the end."""
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="tollgate-api-") as name:
        folder, listen = Path(name), free_port()
        conf = configuration(folder, provider.server_address[1], listen, **keys)
        base_url = f"http://127.0.0.1:{listen}/api/v1"
        with (folder / "log").open("wb") as log:
            gateway = subprocess.Popen([binary(), "serve", "--conf", conf], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until_healthy(base_url, gateway)
            yield gateway, conf, base_url
            if gateway.poll() is not None:
                print("the gateway ended by itself; its log:")
                print((folder / "log").read_text(errors="replace")[-5_000:])
                sys.exit(1)
            gateway.send_signal(signal.SIGTERM)
            ended = gateway.wait(COMMAND_SECONDS_MAX)
            audit = command(conf, "ledger", "audit")
            print(f"the gateway ended with {ended}; audit: {json.dumps(audit)}", flush=True)
            if ended or not audit["balanced"]:
                sys.exit(1)
        finally:
            if gateway.poll() is None:
                gateway.kill()
                gateway.wait()


def schemathesis(description: str, token: str, config: str, hooks: str, folder: Path, **variables) -> int:
    # Every check is on by itself. One that is named here as well would be on where the file says that it is not.
    words = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(HERE / config), "run", description, "--header",
        f"Authorization: Bearer {token}", "--max-examples", EXAMPLES, "--seed", os.environ.get("TOLLGATE_API_SEED", "1"),
        "--suppress-health-check", "all", "--request-timeout", "20", "--continue-on-failure", *sys.argv[1:],
    ]  # fmt: skip
    environment = os.environ | variables | {"SCHEMATHESIS_HOOKS": hooks, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, cwd=folder, env=environment, timeout=RUN_SECONDS_MAX, check=False).returncode


def for_clients() -> int:
    with running() as (_, conf, base_url):
        command(conf, "account", "create", "api", "--tier", "enterprise")
        command(conf, "credits", "add", "api", "1000000", "--reference", "first")
        key = command(conf, "key", "create", "--account", "api")["key"]
        # Made-up models are asked for as often as real ones: the hooks put these in.
        return schemathesis(f"{base_url}/openapi.json", key, "schemathesis.toml", "hooks", conf.parent)


def for_operators(store: str | None) -> int:
    listen = f"127.0.0.1:{free_port()}"
    keys = {"operator_listen": listen} | ({"store": store} if store else {})
    with running(**keys) as (_, conf, _):
        command(conf, "account", "create", "acme", "--tier", "enterprise")
        operator = command(conf, "operator", "create", "Schemathesis", "--role", "admin")
        lengths.check(f"http://{listen}/v1", operator["token"], "acme")
        description = f"http://{listen}/v1/openapi.json"
        own = operator["id"]
        return schemathesis(description, operator["token"], "operators.toml", "operators", conf.parent, TOLLGATE_API_OPERATOR=own)


@contextmanager
def redis():
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tollgate-api-redis-") as folder:
        words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes", "--maxmemory-policy", "noeviction"]
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit("redis-server does not answer")
                time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            server.wait()


def main() -> int:
    status = for_clients() or for_operators(None)
    with redis() as store:
        return status or for_operators(store)


if __name__ == "__main__":
    sys.exit(main())

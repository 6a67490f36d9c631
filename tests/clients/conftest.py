"""The gateway that the client tests talk to: the real binary, as `tollgate demo` starts it, on a free port with a directory of its own.

Accounts and keys are made with the operator's commands while it runs, so that each test has its own and no test sees another's spending.
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import httpx
import openai
import pytest

ROOT = Path(__file__).resolve().parents[2]

# Deadlines, not pauses: each wait ends as soon as what it waits for is there.
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20
COMMAND_SECONDS_MAX = 20
# What a command changes takes effect within a second; the rest is for a busy machine.
EFFECT_SECONDS_MAX = 5
CALL_SECONDS_MAX = 20

# With these set the demo would serve the real provider; the tests want the simulated one. The tracing ones would call out.
HIDDEN_ENVIRONMENT = ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")

# Of webhooks whose secret_env is TOLLGATE_TEST_WEBHOOK_SECRET.
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What is skipped is told to tests/run."""
    if file := os.environ.get("TOLLGATE_SKIPPED"):
        skipped = {report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])}
        with open(file, "a") as told:
            told.writelines(f"{reason}\n" for reason in sorted(skipped))


def binary() -> Path:
    if path := os.environ.get("TOLLGATE_BIN"):
        found = Path(path)
    else:
        found = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "tollgate"
    if not found.is_file():
        pytest.exit(f"{found} is not there: run `tests/run python`, or `cargo build` first", returncode=1)
    return found


def decimals(text: str):
    """JSON with every number as it was written: a balance read into a float would hide a wrong digit."""
    return json.loads(text, parse_float=Decimal)


@dataclass(frozen=True)
class Account:
    """An account with one key, as a client of its own."""

    gateway: "Gateway"
    name: str
    key: str

    def client(self, **options) -> openai.OpenAI:
        return openai.OpenAI(**self._options(options))

    def async_client(self, **options) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self._options(options))

    def _options(self, options: dict) -> dict:
        # No retries: a test that passes at the second try would hide the first.
        return {"base_url": self.gateway.base_url, "api_key": self.key, "max_retries": 0, "timeout": CALL_SECONDS_MAX} | options

    def ask(self, path: str, **query) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.get(self.gateway.base_url + path, params=query, headers=headers, timeout=CALL_SECONDS_MAX)

    def read(self, path: str, **query):
        """One of the gateway's own listings (`/llm/...`), with exact decimals."""
        answer = self.ask(path, **query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return decimals(answer.text)

    def balance(self) -> Decimal:
        return Decimal(self.read("/llm/balance")["balance"])

    def usage(self) -> dict:
        return self.read("/llm/usage", period="all")

    def settled_usage(self, tokens: int) -> dict:
        """The usage once `tokens` are settled: settlement follows the last byte, it does not delay it."""
        return wait_for(self.usage, lambda usage: usage["total_tokens"] >= tokens, f"{tokens} settled tokens")

    def list_prices(self) -> dict[str, tuple[Decimal, Decimal]]:
        models = self.read("/llm/models")["models"]
        for model in models:
            assert isinstance(model["pricing"]["prompt"], str) and isinstance(model["pricing"]["completion"], str)
        return {m["id"]: (Decimal(m["pricing"]["prompt"]), Decimal(m["pricing"]["completion"])) for m in models}


def wait_for(read, accept, what: str, seconds: float = EFFECT_SECONDS_MAX):
    """Reads until the value is accepted; the last value is in the failure."""
    deadline = time.monotonic() + seconds
    while True:
        value = read()
        if accept(value):
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s for {what}; last seen: {value}")
        time.sleep(0.05)


def read_to_end(pipe, lines: queue.Queue):
    """Puts each line, then None. A pipe that nobody reads would one day block the gateway."""
    for line in pipe:
        lines.put(line)
    lines.put(None)


class Gateway:
    """A running `tollgate demo`."""

    # What starts the binary, with its path and its arguments; nothing for itself.
    wrapper: tuple = ()

    def __init__(self, directory: Path):
        self._start(directory, "demo", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"), "--json")
        lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=read_to_end, args=(self.process.stdout, lines), daemon=True).start()
        try:
            first = lines.get(timeout=START_SECONDS_MAX)
        except queue.Empty:
            first = None
        try:
            ready = json.loads(first or b"null")
            self.base_url = ready["base_url"]
            self.conf = ready["conf"]
            self.demo = Account(self, ready["account"], ready["key"])
        except (TypeError, KeyError, ValueError):
            self.kill()
            pytest.exit(f"`tollgate demo --json` printed {first!r} as its first line; its log:\n{self.log_text()}", returncode=1)

    def _start(self, directory: Path, *arguments: str):
        self.directory = directory
        self.log = directory / "gateway.log"
        self._names = itertools.count(1)
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN_ENVIRONMENT}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, binary(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=environment,
            )

    def command(self, *arguments: str):
        """Runs an operator's command on the running gateway and returns what it printed as JSON."""
        done = subprocess.run(
            [binary(), *arguments, "--conf", self.conf, "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.directory,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"tollgate {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return decimals(done.stdout) if done.stdout.strip() else None

    def account(self, tier: str = "pro", credits: str = "1", account_options=(), key_options=()) -> Account:
        """A new account with credit and one key, ready to be used."""
        name = f"{tier}-{next(self._names)}"
        self.command("account", "create", name, "--tier", tier, *account_options)
        if Decimal(credits):
            self.command("credits", "add", name, credits, "--reference", f"funds-of-{name}")
        key = self.command("key", "create", "--account", name, *key_options)["key"]
        account = Account(self, name, key)
        wait_for(lambda: account.ask("/llm/balance").status_code, lambda status: status != 401, f"the key of {name}")
        wait_for(account.balance, lambda balance: balance == Decimal(credits), f"{credits} credits on {name}")
        return account

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")[-10_000:]

    def stop(self):
        """Stops it as an operator would. One that has to be killed, or that died before, is a failure."""
        assert self.process.poll() is None, f"the gateway ended by itself, with {self.process.returncode}; its log:\n{self.log_text()}"
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"the gateway did not stop within {STOP_SECONDS_MAX} s of SIGTERM; its log:\n{self.log_text()}")
        assert self.process.returncode == 0, f"the gateway ended with {self.process.returncode}; its log:\n{self.log_text()}"

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session", autouse=True)
def environment():
    for name in HIDDEN_ENVIRONMENT:
        os.environ.pop(name, None)
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        os.environ[name] = "false"
    os.environ["TOLLGATE_TEST_WEBHOOK_SECRET"] = WEBHOOK_SECRET


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    yield from running(Gateway(tmp_path_factory.mktemp("gateway")))


def running(running: Gateway):
    """A fixture's gateway: it must stop as it should after the last test."""
    try:
        yield running
        running.stop()
    finally:
        if running.process.poll() is None:
            running.kill()


@pytest.fixture
def client(gateway):
    """The demo account, as the quickstart prints it: nothing but base_url and a key."""
    with gateway.demo.client() as client:
        yield client

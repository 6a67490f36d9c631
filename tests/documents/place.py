"""A copy of the repository in which a document's blocks run, beside a demo that was started as the README says.

`cargo build` is the only thing that is not what a reader would run: a stand-in links the binary that is there already.
"""

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import markdown

# What would make the demo ask a real provider.
HIDDEN_ENVIRONMENT = ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "OPENAI_BASE_URL", "CARGO_TARGET_DIR", "QUICKSTART_PROFILE")
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20
BLOCK_SECONDS_MAX = 60

CARGO = """#!/bin/sh
# In place of cargo: the binary is built already.
[ "$1" = build ] || { echo "unexpected: cargo $*" >&2; exit 101; }
for profile in release quick; do mkdir -p target/$profile && ln -sf "$TOLLGATE_BIN" target/$profile/tollgate; done
"""


class Place:
    """The copy, its demo, and one shell in which all blocks of a document run, as if they were pasted."""

    def __init__(self, folder: Path, binary: Path, python: str, node_modules: Path):
        self.root = folder / "tollgate"
        for name in markdown.files():
            if not name.startswith("tests/fuzz/corpus/"):
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(markdown.ROOT / name, self.root / name)
        (self.root / "node_modules").symlink_to(node_modules)
        tools, absent = folder / "tools", folder / "absent"
        self._tool(tools / "cargo", CARGO)
        # The quickstart would install these where they are missing; nothing here compiles.
        for name in ("cc", "c++", "make", "cmake"):
            self._tool(absent / name, "#!/bin/sh\n")
        self.python = python
        self.environment = {name: value for name, value in os.environ.items() if name not in HIDDEN_ENVIRONMENT}
        self.environment |= {"PATH": f"{tools}:{os.environ['PATH']}:{absent}", "TOLLGATE_BIN": str(binary), "HOME": str(folder)}
        self.environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        self.log = folder / "demo.log"
        self.greeting = self._start_demo()
        self.listen = re.search(r"base URL +http://([^/]+)/", self.greeting)[1]
        self.key = re.search(r"^key +(tg_[0-9a-f]+)$", self.greeting, re.M)[1]
        conf = (self.root / "data/demo/tollgate.yaml").read_text()
        self.admin = re.search(r'^admin_listen: "([^"]+)"$', conf, re.M)[1]
        self.shell = None

    @staticmethod
    def _tool(path: Path, text: str):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def _start_demo(self) -> str:
        """Runs the README's first block; what it prints until it is ready, without the log of requests."""
        with self.log.open("wb") as log:
            self.demo = subprocess.Popen(
                ["bash", "-c", "exec conf/quickstart"],
                cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while "Ctrl-C stops it." not in self.log.read_text():
            if self.demo.poll() is not None or time.monotonic() > deadline:
                self.demo.kill()
                raise AssertionError(f"the demo did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        return self.log.read_text()

    def open_shell(self, exported: bool):
        """Opens the shell; `exported`: TOLLGATE_URL and TOLLGATE_KEY are set, as the README says."""
        environment = dict(self.environment)
        if exported:
            environment |= {"TOLLGATE_URL": f"http://{self.listen}/api/v1", "TOLLGATE_KEY": self.key}
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read_to_end, daemon=True).start()
        # Any command that fails makes its block fail; it does not end the shell, nor would it end a reader's.
        self._say("set -E; trap '__failed=$?' ERR")

    def _read_to_end(self):
        for line in self.shell.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _say(self, line: str):
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()

    def actual(self, text: str) -> str:
        """The demo takes other ports where its own are taken, so the addresses in a document become those that it printed."""
        return text.replace("127.0.0.1:8080", self.listen).replace("127.0.0.1:9090", self.admin)

    def shown(self, output: str) -> str:
        """The other way round."""
        return output.replace(self.listen, "127.0.0.1:8080").replace(self.admin, "127.0.0.1:9090")

    def run(self, text: str) -> tuple[int, str]:
        """Pastes a block into the shell; its status (the last one that is not 0) and what it printed."""
        script = self.root.parent / "block.sh"
        script.write_text(self.actual(text).replace("tg_…", self.key) + "\n")
        self._say(f"__failed=0; source {script} </dev/null; printf '\\n%s %s\\n' '-- end of block' $__failed")
        output, deadline = "", time.monotonic() + BLOCK_SECONDS_MAX
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"took longer than {BLOCK_SECONDS_MAX} s; so far:\n{output}") from None
            if line is None:
                raise AssertionError(f"the shell ended:\n{output}")
            if ended := re.match(r"^-- end of block (\d+)$", line):
                return int(ended[1]), output
            output += line

    def run_program(self, language: str, text: str) -> tuple[int, str]:
        if language == "python":
            name, command = "block.py", f'"{self.python}" block.py'
        else:
            name, command = "block.mjs", "node block.mjs"
        (self.root / name).write_text(self.actual(text))
        return self.run(command)

    def close(self):
        """Ends shell and demo. A demo that does not stop as Ctrl-C stops it is a failure."""
        try:
            if self.shell:
                os.killpg(self.shell.pid, signal.SIGKILL)
                self.shell.wait()
            assert self.demo.poll() is None, f"the demo ended by itself:\n{self.log.read_text()[-4000:]}"
            self.demo.send_signal(signal.SIGINT)
            assert self.demo.wait(STOP_SECONDS_MAX) == 0
        finally:
            if self.demo.poll() is None:
                self.demo.kill()
                self.demo.wait()

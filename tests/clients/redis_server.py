"""A redis-server of a test's own."""

import subprocess
from pathlib import Path

from conftest import CALL_SECONDS_MAX, START_SECONDS_MAX, wait_for
from ports import free_port


class Redis:
    def __init__(self, folder: Path):
        self.port = free_port()
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        self.process = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
        wait_for(lambda: self.ask("PING"), lambda answer: answer == "PONG", "redis-server", START_SECONDS_MAX)

    def ask(self, *words: str) -> str:
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, timeout=CALL_SECONDS_MAX).stdout.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

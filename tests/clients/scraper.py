"""A real Prometheus, of Debian's package, that scrapes gateways with the shipped configuration and rules."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
from conftest import CALL_SECONDS_MAX, ROOT, Gateway
from ports import free_port

INSTALLED = shutil.which("prometheus") is not None
MISSING = "Debian's package prometheus is not installed (tests/run does that)"
START_SECONDS_MAX = 40


def rules() -> str:
    """The shipped rules."""
    return (ROOT / "conf/prometheus/alerts.yaml").read_text()


def admin_address(gateway: Gateway) -> str:
    """Where a gateway's metrics are, as its configuration says."""
    return re.search(r'"?admin_listen"?: "?([^"\n]+)', Path(gateway.conf).read_text()).group(1)


class Prometheus:
    """It scrapes the gateways, each under its name as `instance`, every so often, and evaluates the rules as often."""

    def __init__(self, folder: Path, gateways: dict[str, str], rules: str, every: str):
        shipped = (ROOT / "conf/prometheus/prometheus.yaml").read_text()
        one = '- targets: [ "127.0.0.1:9090" ]'
        assert shipped.count(one) == 1 and shipped.count("15s") == 2
        each = [f'- {{ targets: [ "{address}" ], labels: {{ instance: {name} }} }}' for name, address in gateways.items()]
        config = shipped.replace("15s", every).replace(one, "\n      ".join(each))
        (folder / "prometheus.yaml").write_text(config)
        (folder / "alerts.yaml").write_text(rules)
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.log = folder / "prometheus.log"
        settings = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
        self.process = subprocess.Popen(["prometheus", *settings], stdout=subprocess.DEVNULL, stderr=self.log.open("wb"))
        try:
            self._wait_up()
        except BaseException:
            self.stop()
            raise

    def _wait_up(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                if httpx.get(f"{self.base}/-/ready", timeout=CALL_SECONDS_MAX).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def ask(self, query: str) -> list:
        """The result of a query now."""
        answer = httpx.get(f"{self.base}/api/v1/query", params={"query": query}, timeout=START_SECONDS_MAX).json()
        assert answer["status"] == "success", f"{query}: {answer}"
        return answer["data"]["result"]

    def rules(self) -> list:
        groups = httpx.get(f"{self.base}/api/v1/rules", timeout=CALL_SECONDS_MAX).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def fired(self) -> set[tuple[str, str]]:
        """Every alert that has fired so far, with its instance."""
        result = self.ask('count by (instance, alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))')
        return {(sample["metric"]["instance"], sample["metric"]["alertname"]) for sample in result}

    def stop(self):
        self.process.terminate()
        self.process.wait(10)

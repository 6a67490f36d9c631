"""A real Prometheus scrapes a loaded gateway: it accepts the shipped rules, and every query of the shipped dashboard returns data."""

import json
import re
import shutil
import subprocess
import time
from decimal import Decimal

import httpx
import pytest

from conftest import ROOT, wait_for

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed (tests/run does that)")

SCRAPES_SECONDS_MAX = 40


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def admin(gateway) -> str:
    return re.search(r'^admin_listen: "?([^"\n]+)', open(gateway.conf).read(), re.MULTILINE).group(1)


@pytest.fixture(scope="module")
def prometheus(admin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(ROOT / "conf/prometheus/alerts.yaml", folder)
    shipped = (ROOT / "conf/prometheus/prometheus.yaml").read_text()
    config = shipped.replace("15s", "1s").replace("127.0.0.1:9090", admin)
    assert config != shipped
    (folder / "prometheus.yaml").write_text(config)
    port = free_port()
    process = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    base = f"http://127.0.0.1:{port}"
    try:
        wait_up(base, process, folder)
        yield base
    finally:
        process.terminate()
        process.wait(10)


def wait_up(base: str, process, folder):
    deadline = time.monotonic() + SCRAPES_SECONDS_MAX
    while True:
        try:
            if httpx.get(f"{base}/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)


def ask(base: str, query: str) -> list:
    answer = httpx.get(f"{base}/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", f"{query}: {answer}"
    return answer["data"]["result"]


def load(account):
    """Calls of every kind: whole, streamed, embedded, refused, failing."""
    url, key = account.gateway.base_url, {"authorization": f"Bearer {account.key}"}
    chat = {"model": "simulated/chat", "messages": [{"role": "user", "content": "Tell me a short story."}]}
    for body in [chat, chat | {"stream": True}, chat | {"messages": [{"role": "user", "content": "simulate:500 please"}]}, chat | {"model": "no/model"}]:
        httpx.post(f"{url}/llm/chat", json=body, headers=key, timeout=20)
    httpx.post(f"{url}/llm/embeddings", json={"model": "simulated/embed", "input": "a"}, headers=key)
    httpx.get(f"{url}/llm/balance", headers={"authorization": "Bearer tg_wrong"})


def queries() -> list[tuple[str, str]]:
    dashboard = json.loads((ROOT / "conf/grafana/tollgate.json").read_text())
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(found) > 30
    return found


def test_every_query_of_the_dashboard_returns_data(gateway, prometheus):
    account = gateway.account(credits="5")
    load(account)
    deadline = time.monotonic() + SCRAPES_SECONDS_MAX
    missing = queries()
    while missing and time.monotonic() < deadline:
        load(account)
        left = []
        for title, query in missing:
            query = query.replace("$__rate_interval", "10s").replace("$instance", ".*")
            result = ask(prometheus, query)
            if not result or all(sample["value"][1] == "NaN" for sample in result):
                left.append((title, query))
        missing = left
    assert not missing, f"no data for {missing}"


def test_the_rules_are_loaded_and_none_fires_on_a_sound_gateway_but_those_of_the_load(prometheus):
    rules = httpx.get(f"{prometheus}/api/v1/rules").json()["data"]["groups"]
    names = [rule["name"] for group in rules for rule in group["rules"]]
    assert len(names) >= 19 and all(rule["health"] != "err" for group in rules for rule in group["rules"])
    firing = {alert["labels"]["alertname"] for alert in httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"] if alert["state"] == "firing"}
    assert not {name for name in firing if "Books" in name or "Settle" in name or "Overrun" in name}, firing


def test_an_alert_fires_when_its_cause_is_there(gateway, prometheus):
    """One on the real way, from cause to alert; tests/prometheus has the others on made-up series."""
    before = open(gateway.conf).read()
    open(gateway.conf, "w").write(before + "\nmarcup: 2\n")
    try:
        wait_long(lambda: ask(prometheus, "tollgate_reload_refused"), lambda result: result and result[0]["value"][1] == "1", "the refused reload")
        pending = lambda: {alert["labels"]["alertname"] for alert in httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]}
        wait_long(pending, lambda names: "TollgateReloadRefused" in names, "the alert")
    finally:
        open(gateway.conf, "w").write(before)
    wait_long(lambda: ask(prometheus, "tollgate_reload_refused"), lambda result: result and result[0]["value"][1] == "0", "the good file")


def wait_long(read, accept, what: str):
    deadline = time.monotonic() + SCRAPES_SECONDS_MAX
    while not accept(value := read()):
        assert time.monotonic() < deadline, f"{what}; last seen: {value}"
        time.sleep(0.1)


def test_what_prometheus_adds_up_is_what_the_ledger_has(gateway, prometheus):
    account = gateway.account(credits="5")
    load(account)
    used = account.settled_usage(1)
    spent = Decimal(5) - account.balance()
    assert Decimal(used["total_cost"]) == spent > 0
    page = httpx.get("http://" + re.search(r'^admin_listen: "?([^"\n]+)', open(gateway.conf).read(), re.MULTILINE).group(1) + "/metrics").text
    total = sum(Decimal(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("tollgate_debited_credits_total{"))
    wait_for(lambda: ask(prometheus, "sum(tollgate_debited_credits_total)"), lambda result: result and abs(Decimal(result[0]["value"][1]) - total) < Decimal("1e-9"), f"{total}")

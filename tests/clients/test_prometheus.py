"""A real Prometheus scrapes a loaded gateway: it accepts the shipped rules, and every query of the shipped dashboard returns data."""

import json
import time
from decimal import Decimal

import httpx
import pytest
from conftest import ROOT, wait_for
from scraper import INSTALLED, MISSING, Prometheus, admin_address, rules

pytestmark = pytest.mark.skipif(not INSTALLED, reason=MISSING)

SCRAPES_SECONDS_MAX = 40


@pytest.fixture(scope="module")
def prometheus(gateway, tmp_path_factory):
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), {"demo": admin_address(gateway)}, rules(), "1s")
    try:
        yield prometheus
    finally:
        prometheus.stop()


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
            result = prometheus.ask(query)
            if not result or all(sample["value"][1] == "NaN" for sample in result):
                left.append((title, query))
        missing = left
    assert not missing, f"no data for {missing}"


def test_the_rules_are_loaded(prometheus):
    loaded = prometheus.rules()
    assert len(loaded) > 20 and all(rule["health"] != "err" for rule in loaded)


def test_what_prometheus_adds_up_is_what_the_ledger_has(gateway, prometheus):
    account = gateway.account(credits="5")
    load(account)
    used = account.settled_usage(1)
    spent = Decimal(5) - account.balance()
    assert Decimal(used["total_cost"]) == spent > 0
    page = httpx.get(f"http://{admin_address(gateway)}/metrics").text
    total = sum(Decimal(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("tollgate_debited_credits_total{"))
    wait_for(lambda: prometheus.ask("sum(tollgate_debited_credits_total)"), lambda result: result and abs(Decimal(result[0]["value"][1]) - total) < Decimal("1e-9"), f"{total}")

"""A real Prometheus scrapes a loaded gateway: it accepts the shipped rules, and every query of the shipped dashboard returns data."""

import json
import re
import subprocess
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


def test_the_gateways_own_time_is_shown_of_the_routes_that_its_alert_is_about():
    # The panel was of all routes, so it showed another time than the one that the alert tells.
    (routes,) = re.findall(r'tollgate_overhead_seconds_bucket\{(route=~"[^"]+")\}', rules())
    shown = [query for _, query in queries() if "tollgate_overhead_seconds_bucket" in query]
    assert len(shown) == 2 and all(routes in query for query in shown), shown


@pytest.mark.parametrize(
    ("values", "up", "start", "shown"),
    [
        ("_x240 3+0x20", "1+0x260", "-86400+0x260", 3),
        ("_x240 3+0x20", "_x240 1+0x20", "_x240 3590+0x20", 3),
        ("3+0x260", "1+0x260", "-86400+0x260", 0),
        ("_x240 3+0x20", "_x240 1+0x20", "-86400+0x260", 0),
        ("3+0x199 stale _x3 3+0x56", "1+0x199 0 1+0x59", "-86400+0x199 stale 3010+0x59", 3),
        ("3+0x199 stale _x3 5+0x56", "1+0x199 0 1+0x59", "-86400+0x199 stale 3010+0x59", 5),
        ("3+0x99 10+0x99 stale _x3 1+0x56", "1+0x199 0 1+0x59", "-86400+0x199 stale 3010+0x59", 8),
        ("_x240 3+0x20", "1+0x3 0 1+0x255", "-86400+0x3 stale -86400+0x255", 3),
        ("_x240 3+0x3 stale 3+0x15", "1+0x243 0 1+0x15", "-86400+0x243 stale -86400+0x15", 3),
        ("3+0x3 stale 3+0x255", "1+0x3 0 1+0x255", "-86400+0x3 stale -86400+0x255", 0),
    ],
    ids=[
        "a new series",
        "a new process",
        "an old loss",
        "an old loss and a new Prometheus",
        "the same loss in the next process",
        "a larger loss in the next process",
        "a loss of each of two processes",
        "a new series and a scrape that failed an hour before",
        "a new series and a scrape that fails",
        "an old loss and a scrape that failed an hour before",
    ],
)
def test_the_loss_panels_show_a_first_loss_and_no_old_one(tmp_path, values, up, start, shown):
    """Each query of such a loss, over series that begin with a call, one hour and a minute from the first scrape on."""
    labels = 'instance="gw",job="tollgate"'
    found = [(title, query.replace("$instance", ".*")) for title, query in queries() if "process_start_time_seconds" in query]
    assert len(found) == 6
    cases = []
    for title, query in found:
        name, selector = re.search(r"increase\((\w+)\{([^}]*)\}", query).groups()
        kind = ',kind="unknown_service_tier"' if "kind=" in selector else ""
        result = ',result="refused"' if "result" in selector else ""
        series = f'{name}{{{labels},model="a/b"{kind}{result}}}'
        sample = {"labels": '{model="a/b"}' if "by (model)" in query else "{}", "value": shown}
        given = {series: values, f"up{{{labels}}}": up, f"process_start_time_seconds{{{labels}}}": start}
        cases.append(
            {
                "name": title,
                "interval": "15s",
                "input_series": [{"series": one, "values": these} for one, these in given.items()],
                "promql_expr_test": [{"expr": f"round({query})", "eval_time": "61m", "exp_samples": [sample]}],
            }
        )
    # JSON is YAML.
    (tmp_path / "dashboard_test.yaml").write_text(json.dumps({"evaluation_interval": "1m", "tests": cases}))
    tested = subprocess.run(["promtool", "test", "rules", tmp_path / "dashboard_test.yaml"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr + tested.stdout


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

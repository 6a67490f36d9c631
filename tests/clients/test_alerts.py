"""Each shipped alert fires because of its cause: a real Prometheus scrapes real gateways to which it happens, all of them at once.

Time runs TIMES as fast for the rules (`hastened`), so that half an hour of maintenance is some seconds; tests/prometheus has the shipped
times. A gateway to which nothing happens is loaded all the while, and nothing fires on it. To the rules each process is one that has just begun.
"""

import hmac
import itertools
import json
import os
import re
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from conftest import CALL_SECONDS_MAX, ROOT, WEBHOOK_SECRET, Account, wait_for
from faulty import MODEL, PATIENT, FaultyGateway
from ports import free_port
from redis_server import Redis
from scraper import INSTALLED, MISSING, Prometheus, admin_address, rules

pytestmark = pytest.mark.skipif(not INSTALLED, reason=MISSING)

# How much faster time runs for the rules, and how often Prometheus scrapes: every 50 seconds of theirs, for their shortest range is two minutes
# and has to have two scrapes in it, also where one is late.
TIMES = 100
SCRAPES_EVERY = "500ms"
# What a rule waits for apart from its durations, of which a test cannot make so much: a number for each such rule.
LESS = {
    # Audits come every second here, and a busy machine may hold one up for longer than 900 // TIMES.
    "tollgate_audit_interval_seconds + 900": f"tollgate_audit_interval_seconds + {3600 // TIMES}",
    "tollgate_journal_age_seconds > 3600": f"tollgate_journal_age_seconds > {3600 // TIMES}",
    "tollgate_webhook_oldest_event_age_seconds > 3600": f"tollgate_webhook_oldest_event_age_seconds > {3600 // TIMES}",
    "tollgate_unsettled_debits > 5000": "tollgate_unsettled_debits > 5",
}
# The slowest alert takes the shortened hour; the rest is for a busy machine.
FIRES_SECONDS_MAX = 150
PAUSE_SECONDS = 0.05
STRIPE_PORT = free_port()
OPERATOR_PORT = free_port()
# A certificate and its key.
EXPIRED = str(ROOT / "tests/fixtures/expired.pem")
# A model with prices by tier.
TIERED = "faulty/tiers"
# These measure the machine as well as the gateway, and it is busy: a scrape that takes longer than its interval is one that failed.
MEASURE_THE_MACHINE = {"TollgateSlow", "TollgateStoreSlow", "TollgateDown"}


def hastened(shipped: str) -> str:
    """The rules with each duration (`for`, range and its step, offset) divided by TIMES, the thresholds of LESS replaced, and nothing else changed."""
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    def shorter(match: re.Match) -> str:
        return f"{match[1]}{int(match[2]) * units[match[3]] // TIMES}ms"

    rules = re.sub(r"(for: |\[|(?<=[smhd]):|offset )(\d+)([smhd])\b", shorter, shipped)
    for said, less in LESS.items():
        assert rules.count(said) == 1, said
        rules = rules.replace(said, less)
    return rules


@dataclass
class Happening:
    """What the threads to which it happens share."""

    done: threading.Event = field(default_factory=threading.Event)
    fired: set = field(default_factory=set)

    def wait(self):
        """Lets a moment pass; false once everything has fired."""
        return not self.done.wait(PAUSE_SECONDS)


@dataclass(frozen=True)
class Cause:
    """What happens to a gateway, and the alerts that this must raise."""

    happen: Callable[["Place", Happening], None]
    alerts: frozenset
    settings: dict = field(default_factory=dict)
    redis: bool = False
    wrapper: tuple = ()


class TieredGateway(FaultyGateway):
    pricing = {TIERED: {"prompt": "0.000001", "completion": "0.000002", "tiers": {"flex": {"prompt": "0.0000005", "completion": "0.000001"}}}}


class Place:
    """A gateway, and the Redis that it has."""

    def __init__(self, folder: Path, cause: Cause):
        self.folder = folder
        folder.mkdir()
        self.redis = Redis(folder) if cause.redis else None
        store = {"store": f"redis://127.0.0.1:{self.redis.port}"} if self.redis else {}
        self.gateway = TieredGateway(folder, cause.wrapper, audit_seconds=1, **store, **cause.settings)

    def account(self, credits: str = "5") -> Account:
        return self.gateway.account(tier="enterprise", credits=credits)

    def metric(self, name: str) -> float:
        """The sum of a metric's samples, or nothing when it has none."""
        page = httpx.get(f"http://{admin_address(self.gateway)}/metrics", timeout=CALL_SECONDS_MAX).text
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if re.match(rf"{name}[ {{]", line))

    def end(self):
        self.gateway.kill()
        self.gateway.upstream.close()
        if self.redis:
            self.redis.kill()


def call(account: Account, fault: str, stream: bool = False, **more) -> int:
    """One call to its end, whatever that is; its status. A stream has room for all that comes: it ends at its maximum. `more` replaces
    fields of the request; None leaves one out."""
    body = {"model": MODEL, "max_tokens": 1000 if stream else 10, "stream": stream, "messages": [{"role": "user", "content": fault}]}
    body = {name: value for name, value in (body | more).items() if value is not None}
    headers = {"authorization": f"Bearer {account.key}"}
    try:
        return httpx.post(f"{account.gateway.base_url}/llm/chat", json=body, headers=headers, timeout=60).status_code
    except httpx.TransportError:
        return 0


def in_background(account: Account, fault: str, count: int):
    for _ in range(count):
        threading.Thread(target=call, args=(account, fault, True), daemon=True).start()


def nothing(place: Place, happening: Happening):
    """Sound calls of each kind."""
    account = place.account()
    while happening.wait():
        assert call(account, "none") == 200
        assert call(account, "none", stream=True) == 200
        account.balance()


def redis_dies(place: Place, happening: Happening):
    """Calls run, and nobody takes their debits any more."""
    account = place.account()
    in_background(account, "slow/30", 8)
    wait_for(lambda: place.metric("tollgate_holds_open"), lambda holds: holds >= 8, "running calls", CALL_SECONDS_MAX)
    place.redis.kill()
    while happening.wait():
        assert call(account, "none") == 503


def redis_stops_and_goes(place: Place, happening: Happening):
    """It answers, but a call waits for it up to 300 ms. Less than the gateway's patience."""
    account = place.account()

    def calls():
        while happening.wait():
            call(account, "none")

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(calls) for _ in range(4)]
        while happening.wait():
            place.redis.ask("CLIENT", "PAUSE", "300", "ALL")
            time.sleep(0.3)
        for caller in callers:
            caller.result()


def operator_errs(place: Place, happening: Happening):
    """Somebody writes into the ledger's file, forgets maintenance and to renew a certificate, restores an old catalogue, saves a mistake; the disk
    of the log is full."""
    account = place.account()
    wait_for(lambda: place.metric("tollgate_audit_age_seconds"), lambda age: age >= 0, "an audit")
    with sqlite3.connect(place.folder / "ledger.db", timeout=CALL_SECONDS_MAX) as ledger:
        ledger.execute("UPDATE accounts SET balance = balance + 1000000000000 WHERE id = ?", [account.name])
    ledger.close()
    place.gateway.command("maintenance", "on")
    months_ago = time.time() - 46 * 86_400
    os.utime(place.folder / "catalogue.yaml", (months_ago, months_ago))
    wait_for(lambda: place.metric("tollgate_catalogue_age_seconds"), lambda age: age > 45 * 86_400, "the old catalogue")
    conf = Path(place.gateway.conf)
    conf.write_text(json.dumps(json.loads(conf.read_text()) | {"marcup": "2"}))
    while happening.wait():
        assert call(account, "none") == 503


def disk_is_full(place: Place, happening: Happening):
    """The journal's files are larger than any file may be."""
    account = place.account()
    while happening.wait():
        assert call(account, "none") == 503


def provider_fails(place: Place, happening: Happening):
    """It reports a longer prompt than it was sent, then what cannot be, a total beyond both sides, a tier that nobody asked for; it gives more
    than the model's maximum to somebody who cannot pay it, and breaks off; then nothing but errors."""
    poor, rich = place.account("0.001"), place.account()
    assert call(poor, "overrun") == 200
    assert call(rich, "rejected") == 200
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    assert call(rich, f"usage {json.dumps(usage | {'total_tokens': 21})}") == 200
    assert call(rich, f"usage {json.dumps(usage | {'served_by': 'scale'})}", model=TIERED) == 200
    # Enough for the maximum and some hundred tokens more.
    assert call(place.account("0.004"), "long/600", stream=True, max_tokens=None) == 200
    assert call(rich, "cut/200") == 502
    while happening.wait():
        assert call(rich, "refused") == 500


def provider_is_busy(place: Place, happening: Happening):
    """It takes no call."""
    account = place.account()
    while happening.wait():
        assert call(account, "busy") == 429


def credential_is_refused(place: Place, happening: Happening):
    """Once is enough: it stays so until the provider takes it."""
    assert call(place.account(), "unauthorized") == 500


def credentials_are_missing(place: Place, happening: Happening):
    """It was started without them: the configuration names a variable that is not set."""
    account = place.account()
    while happening.wait():
        assert call(account, "none") == 404


def no_file_can_be_opened(place: Place, happening: Happening):
    """Its limit of open files is reached while a call comes over a connection that stands: it gets no socket to its provider."""
    account, process = place.account(), place.gateway.process.pid
    files, most = resource.prlimit(process, resource.RLIMIT_NOFILE)
    url, body = place.gateway.base_url, {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "none"}]}
    while happening.wait():
        with httpx.Client(timeout=CALL_SECONDS_MAX, headers={"authorization": f"Bearer {account.key}"}) as client:
            assert client.get(f"{url}/llm/health").status_code == 200
            resource.prlimit(process, resource.RLIMIT_NOFILE, (10, most))
            try:
                assert client.post(f"{url}/llm/chat", json=body).status_code == 503
            finally:
                resource.prlimit(process, resource.RLIMIT_NOFILE, (files, most))


def refund_comes_late(place: Place, happening: Happening):
    """What Stripe pays back was taken from the account meanwhile, a chargeback takes what is not there, a payment names no account, one is refunded
    that nobody was credited, and one is disputed."""
    place.gateway.command("credits", "correct", place.account("1").name, "-2", "--reference", "chargeback", "--allow-negative")
    account = place.account("1")
    checkout = {"payment_status": "paid", "payment_intent": "pi_1", "client_reference_id": account.name, "amount_total": 500, "currency": "usd"}
    refund = {"payment_intent": "pi_1", "amount": 500, "currency": "usd", "status": "succeeded"}

    def told(kind: str, thing: dict, status=200):
        body = json.dumps({"id": f"evt_{kind}", "type": kind, "data": {"object": thing}})
        now = int(time.time())
        signature = hmac.new(WEBHOOK_SECRET.encode(), f"{now}.{body}".encode(), "sha256").hexdigest()
        headers = {"stripe-signature": f"t={now},v1={signature}", "content-type": "application/json"}
        answer = httpx.post(f"http://127.0.0.1:{STRIPE_PORT}/v1/hooks/stripe", content=body, headers=headers, timeout=CALL_SECONDS_MAX)
        assert answer.status_code == status, answer.text

    told("checkout.session.completed", checkout)
    place.gateway.command("credits", "correct", account.name, "-5", "--reference", "spent")
    # A counter that Prometheus has never seen at 0 does not increase: each time there is another of each.
    for number in itertools.count():
        if not happening.wait():
            return
        told("refund.created", refund | {"id": f"re_{number}"})
        told("checkout.session.completed", checkout | {"payment_intent": f"pi_nobodys_{number}", "client_reference_id": None})
        told("refund.created", refund | {"id": f"re_nobodys_{number}", "payment_intent": f"pi_nobodys_{number}"}, status=404)
        told("charge.dispute.created", {"id": f"dp_{number}", "payment_intent": "pi_1"})
        time.sleep(1)


def events_grow_old(place: Place, happening: Happening):
    """Nobody takes them for three days, which are a moment in the ledger's file: nobody is due to be told. Each that comes drops those before it."""
    while happening.wait():
        place.account()
        with sqlite3.connect(place.folder / "ledger.db", timeout=CALL_SECONDS_MAX) as ledger:
            ledger.execute("UPDATE events SET at = 0, due = due + 86400000")
        ledger.close()


def stop_hangs(place: Place, happening: Happening):
    """A call outlives the stop; then the process is killed."""
    in_background(place.account(), "slow/600", 1)
    wait_for(lambda: place.metric("tollgate_requests_in_flight"), lambda calls: calls >= 1, "a running call", CALL_SECONDS_MAX)
    place.gateway.process.send_signal(signal.SIGTERM)
    while happening.wait():
        if ("stop", "TollgateNotReady") in happening.fired:
            place.gateway.kill()
            return


# Nobody listens there. The secret is one of the environment that the gateway has.
NOBODY = [{"url": "http://127.0.0.1:1/", "secret_env": "TOLLGATE_TEST_WEBHOOK_SECRET", "allow_private": True}]
UNSOLD = {"faulty": {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "TOLLGATE_TEST_NEVER_SET"}}
CAUSES = {
    # Where nothing may be late, the provider has time, however busy the machine is.
    "control": Cause(nothing, frozenset(), {"timeouts": PATIENT}),
    "outage": Cause(
        redis_dies,
        frozenset({"TollgateStoreFails", "TollgateSettlementLag", "TollgateUnsettledDebits", "TollgateJournalOld", "TollgateBooksNotAudited"}),
        redis=True,
    ),
    "slow": Cause(redis_stops_and_goes, frozenset({"TollgateStoreSlow", "TollgateSlow"}), redis=True),
    "operator": Cause(
        operator_errs,
        frozenset(
            {
                "TollgateBooksDoNotBalance",
                "TollgateMaintenance",
                "TollgateReloadRefused",
                "TollgateCertificateExpires",
                "TollgateCatalogueOld",
                "TollgateCatalogueRefreshFails",
                "TollgateAccessLogDrops",
                "TollgateWebhooksBehind",
            }
        ),
        {
            "access_log": "/dev/full",
            "operator_listen": f"127.0.0.1:{OPERATOR_PORT}",
            "operator_tls": {"cert": EXPIRED, "key": EXPIRED},
            "webhooks": NOBODY,
            # The provider does not answer this.
            "catalogue_refresh": {"provider": "faulty", "rules": str(ROOT / "conf/import.yaml"), "every_minutes": 1440},
        },
    ),
    "disk": Cause(disk_is_full, frozenset({"TollgateJournalUnusable"}), wrapper=("sh", "-c", "trap '' XFSZ; ulimit -S -f 1024; exec \"$@\"", "sh")),
    "provider": Cause(
        provider_fails,
        frozenset(
            {
                "TollgateUnbilled",
                "TollgateUsageReportsRejected",
                "TollgateAnswersDiscarded",
                "TollgateTokensBeyondSides",
                "TollgateUnknownServiceTier",
                "TollgateHoldsNotRaised",
                "TollgateErrors",
                "TollgateProviderFails",
            }
        ),
        {"timeouts": PATIENT},
    ),
    "busy": Cause(provider_is_busy, frozenset({"TollgateModelBusy"}), {"timeouts": PATIENT}),
    "files": Cause(no_file_can_be_opened, frozenset({"TollgateNoConnection"}), {"timeouts": PATIENT}),
    "credential": Cause(credential_is_refused, frozenset({"TollgateCredentialRefused"}), {"timeouts": PATIENT}),
    "unsold": Cause(credentials_are_missing, frozenset({"TollgateNothingOnSale"}), {"providers": UNSOLD}),
    "refund": Cause(
        refund_comes_late,
        frozenset(
            {
                "TollgateRefundShort",
                "TollgateAccountsBelowZero",
                "TollgatePaymentUnassigned",
                "TollgateRefundUnassigned",
                "TollgateDispute",
            }
        ),
        {"operator_listen": f"127.0.0.1:{STRIPE_PORT}", "stripe": {"secret_env": "TOLLGATE_TEST_WEBHOOK_SECRET"}},
    ),
    "events": Cause(events_grow_old, frozenset({"TollgateWebhookEventsDropped"}), {"webhooks": NOBODY}),
    # Its call must go on, however busy the machine is.
    "stop": Cause(stop_hangs, frozenset({"TollgateNotReady", "TollgateDown"}), {"timeouts": PATIENT}),
}
# A charge is never above its hold, so nothing that a provider or a client does raises this: it is an alarm of a mistake of the gateway's.
WITHOUT_CAUSE = {"TollgateOverruns"}
EXPECTED = sorted((name, alert) for name, cause in CAUSES.items() for alert in cause.alerts)


@pytest.fixture(scope="module")
def fired(tmp_path_factory):
    """What fired, once all that was expected to has, or time is over."""
    folder = tmp_path_factory.mktemp("alerts")
    happening, places, prometheus = Happening(), {}, None
    with ThreadPoolExecutor(len(CAUSES)) as pool:
        starting = {name: pool.submit(Place, folder / name, cause) for name, cause in CAUSES.items()}
        try:
            for name, place in starting.items():
                places[name] = place.result()
            targets = {name: admin_address(place.gateway) for name, place in places.items()}
            prometheus = Prometheus(folder, targets, hastened(rules()), SCRAPES_EVERY)
            running = {name: pool.submit(cause.happen, places[name], happening) for name, cause in CAUSES.items()}
            deadline = time.monotonic() + FIRES_SECONDS_MAX
            while not happening.fired.issuperset(EXPECTED) and time.monotonic() < deadline:
                for thread in running.values():
                    if thread.done():
                        thread.result()
                time.sleep(PAUSE_SECONDS)
                happening.fired = prometheus.fired()
            happening.done.set()
            for thread in running.values():
                thread.result()
            yield happening.fired
        finally:
            happening.done.set()
            if prometheus:
                prometheus.stop()
            for place in starting.values():
                if not place.exception():
                    place.result().end()


def test_every_alert_has_a_cause():
    shipped = re.findall(r"- alert: (\w+)", rules())
    assert len(shipped) > 20 and sorted(set(shipped) - WITHOUT_CAUSE) == sorted(alert for _, alert in EXPECTED)


def test_the_rules_differ_in_durations_alone():
    mask = lambda text: re.sub(r"\d+(ms|[smhd])\b", "DURATION", text)
    shipped = rules()
    for said, less in LESS.items():
        shipped = shipped.replace(said, less)
    assert mask(hastened(rules())) == mask(shipped)


@pytest.mark.parametrize(("instance", "alert"), EXPECTED)
def test_its_cause_raises_the_alert(fired, instance, alert):
    assert (instance, alert) in fired, f"{alert} is not among {sorted(fired)}"


def test_nothing_fires_where_nothing_happens(fired):
    assert {alert for instance, alert in fired if instance == "control"} <= MEASURE_THE_MACHINE

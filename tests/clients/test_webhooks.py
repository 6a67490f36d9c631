"""Webhooks as a receiver with the library of the Standard Webhooks convention verifies them."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import EFFECT_SECONDS_MAX, START_SECONDS_MAX, WEBHOOK_SECRET, wait_for
from faulty import FaultyGateway
from standardwebhooks import Webhook, WebhookVerificationError


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.server.answers()
        self.server.got.append((dict(self.headers), body, status))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got = []
    server.answers = lambda: 204
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_signatures_are_verified(receiver, tmp_path):
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    hook = {"url": url, "secret_env": "TOLLGATE_TEST_WEBHOOK_SECRET", "allow_private": True}
    gateway = FaultyGateway(tmp_path, webhooks=[hook])
    try:
        gateway.account(credits="5")
        raised = gateway.command("webhook", "test")["id"]
        found = lambda: {json.loads(body)["type"] for _, body, _ in receiver.got}
        wait_for(found, lambda kinds: kinds >= {"credits.added", "webhook.test"}, "both events", START_SECONDS_MAX + EFFECT_SECONDS_MAX)
    finally:
        gateway.stop()
    verifier = Webhook(WEBHOOK_SECRET)
    for headers, body, _ in receiver.got:
        headers = {name.lower(): value for name, value in headers.items()}
        event = verifier.verify(body, headers)
        assert event["id"] == headers["webhook-id"]
        if event["type"] == "webhook.test":
            assert event["id"] == raised
        for wrong in (headers | {"webhook-id": "evt_other"}, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}):
            with pytest.raises(WebhookVerificationError):
                verifier.verify(body, wrong)
        with pytest.raises(WebhookVerificationError):
            verifier.verify(body + b" ", headers)


def test_every_event_is_verified_over_errors_and_kills(receiver, tmp_path):
    """Every other answer is a 500, at random, and the gateway is killed again and again: each event comes, as it was, with a good signature."""
    chance = random.Random(7)
    receiver.answers = lambda: chance.choice((204, 500))
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    hook = {"url": url, "secret_env": "TOLLGATE_TEST_WEBHOOK_SECRET", "allow_private": True}
    gateway = FaultyGateway(tmp_path, webhooks=[hook])
    posted = set()
    try:
        name = gateway.account(credits="0").name
        for restart in range(4):
            for number in range(10):
                posted.add(f"{restart}-{number}")
                gateway.command("credits", "add", name, "1", "--reference", f"{restart}-{number}")
            gateway.kill()
            gateway.again()
        taken = lambda: {json.loads(body)["data"]["reference"] for _, body, status in list(receiver.got) if status == 204}
        # What the killed ones had claimed is due again after 20 seconds.
        wait_for(taken, lambda references: references >= posted, "all events", 60)
    finally:
        gateway.stop()
    verifier, bodies = Webhook(WEBHOOK_SECRET), {}
    for headers, body, _ in receiver.got:
        headers = {name.lower(): value for name, value in headers.items()}
        verifier.verify(body, headers)
        assert bodies.setdefault(headers["webhook-id"], body) == body
    assert len(bodies) == len(posted)

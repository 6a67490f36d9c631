"""Webhooks as a receiver with the library of the Standard Webhooks convention verifies them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import EFFECT_SECONDS_MAX, START_SECONDS_MAX, WEBHOOK_SECRET, wait_for
from faulty import FaultyGateway
from standardwebhooks import Webhook, WebhookVerificationError


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got = []
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
        found = lambda: {json.loads(body)["type"] for _, body in receiver.got}
        wait_for(found, lambda kinds: kinds >= {"credits.added", "webhook.test"}, "both events", START_SECONDS_MAX + EFFECT_SECONDS_MAX)
    finally:
        gateway.stop()
    verifier = Webhook(WEBHOOK_SECRET)
    for headers, body in receiver.got:
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

"""Webhooks as a receiver with the library of the Standard Webhooks convention verifies them."""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import EFFECT_SECONDS_MAX, START_SECONDS_MAX, WEBHOOK_SECRET, wait_for
from faulty import FaultyGateway
from redis_server import Redis
from standardwebhooks import Webhook, WebhookVerificationError


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            # When it comes: a signature is too old after some minutes.
            Webhook(WEBHOOK_SECRET).verify(body, {name.lower(): value for name, value in self.headers.items()})
        except WebhookVerificationError as error:
            self.server.bad.append((error, dict(self.headers), body))
        status = self.server.answers(self.headers["webhook-id"])
        self.server.got.append((dict(self.headers), body, status))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def receiving(answers: Callable[[str], int] = lambda _: 204):
    """A receiver that answers an event's id so."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got, server.bad, server.answers = [], [], answers
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def hook_at(server: ThreadingHTTPServer) -> dict:
    url = f"http://127.0.0.1:{server.server_port}/hook"
    return {"url": url, "secret_env": "TOLLGATE_TEST_WEBHOOK_SECRET", "allow_private": True}


def on_each_store(folder: Path, run: Callable[..., None]):
    """Runs it with an embedded ledger and with one in Redis, both at once, for it waits most of the time."""
    sqlite, redis = folder / "sqlite", folder / "redis"
    sqlite.mkdir()
    redis.mkdir()
    server = Redis(redis)
    try:
        with ThreadPoolExecutor() as threads:
            runs = [threads.submit(run, sqlite), threads.submit(run, redis, store=f"redis://127.0.0.1:{server.port}")]
        for one in runs:
            one.result()
    finally:
        server.kill()


def references(server: ThreadingHTTPServer, status: int) -> set:
    """Of the events that were answered so."""
    return {json.loads(body)["data"]["reference"] for _, body, answered in list(server.got) if answered == status}


def verified(server: ThreadingHTTPServer) -> int:
    """How many events came. Each had a good signature, and was the same whenever it came."""
    assert not server.bad
    bodies = {}
    for headers, body, _ in server.got:
        headers = {name.lower(): value for name, value in headers.items()}
        assert bodies.setdefault(headers["webhook-id"], body) == body
    return len(bodies)


def test_signatures_are_verified(tmp_path):
    with receiving() as receiver:
        gateway = FaultyGateway(tmp_path, webhooks=[hook_at(receiver)])
        try:
            gateway.account(credits="5")
            raised = gateway.command("webhook", "test")["id"]
            found = lambda: {json.loads(body)["type"] for _, body, _ in list(receiver.got)}
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


def test_every_event_is_verified_over_errors_and_kills(tmp_path):
    """Every other answer is a 500, at random, and the gateway is killed again and again: each event comes, as it was, with a good signature."""

    def over_errors_and_kills(folder: Path, **store):
        chance, posted, refused = random.Random(7), set(), Counter()

        def answer(event: str) -> int:
            # The pauses double: an event that is refused six times comes again after a minute.
            if refused[event] < 4 and chance.random() < 0.5:
                refused[event] += 1
                return 500
            return 204

        with receiving(answer) as receiver:
            gateway = FaultyGateway(folder, webhooks=[hook_at(receiver)], **store)
            try:
                name = gateway.account(credits="0").name
                for restart in range(4):
                    for number in range(10):
                        posted.add(f"{restart}-{number}")
                        gateway.command("credits", "add", name, "1", "--reference", f"{restart}-{number}")
                    gateway.kill()
                    gateway.again()
                # What the killed ones had claimed is due again after 20 seconds.
                wait_for(lambda: references(receiver, 204), lambda taken: taken >= posted, "all events", 60)
            finally:
                gateway.stop()
        assert verified(receiver) == len(posted)
        assert refused, "nothing was refused"

    on_each_store(tmp_path, over_errors_and_kills)


def test_a_receiver_that_was_away_gets_every_event(tmp_path):
    """Nobody listens for TOLLGATE_WEBHOOK_AWAY_SECONDS, in which credit is posted and the gateway killed. Then each event comes, as it was."""
    away_seconds, posts = float(os.environ.get("TOLLGATE_WEBHOOK_AWAY_SECONDS", "3")), 10

    def away(folder: Path, **store):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver, bind_and_activate=False)
        server.server_bind()  # The port is taken, and connections are refused until it listens.
        server.got, server.bad, server.answers, listening = [], [], lambda _: 204, None
        gateway = FaultyGateway(folder, webhooks=[hook_at(server)], **store)
        try:
            name = gateway.account(credits="0").name
            begun = time.monotonic()
            for number in range(posts):
                gateway.command("credits", "add", name, "1", "--reference", f"away-{number}")
                if number == posts // 2:
                    gateway.kill()
                    gateway.again()
                threading.Event().wait(max(0.0, begun + away_seconds * (number + 1) / posts - time.monotonic()))
            server.server_activate()
            listening = threading.Thread(target=server.serve_forever, daemon=True)
            listening.start()
            # The pause before the next attempt is as long as all before, a second and a fifth more; at most a quarter of an hour and a
            # fifth. After that the webhook rests for half a minute, and what a killed process had claimed is due after 20 seconds.
            pause = min(1080, 1.2 * (time.monotonic() - begun + 2))
            wait_for(lambda: references(server, 204), lambda taken: len(taken) == posts, "all events", pause + 60 + EFFECT_SECONDS_MAX)
        finally:
            gateway.stop()
            if listening:
                server.shutdown()
            server.server_close()
        assert verified(server) == posts

    on_each_store(tmp_path, away)

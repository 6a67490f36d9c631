"""Prices by kind of token, by length of the prompt and by tier, against an oracle of its own: the fractions of decimal text, rounded once.

Providers report in several styles; each report comes streamed and whole. What is billed is compared to the last digit of the receipt and of
the balance.
"""

import itertools
import json
import random
from dataclasses import dataclass, fields, replace
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import httpx
import pytest
from conftest import CALL_SECONDS_MAX, running, wait_for
from faulty import PATIENT, FaultyGateway

MARKUP = Decimal("1.15")
PICO = Decimal("0.000000000001")
SEED = 20261124
RANDOM_CALLS = 3_000
# A table that shrinks proves less.
CALLS_MIN = 10_000
THRESHOLDS = (300, 900)
# Whatever a model may have a price for.
NAMES = (
    "prompt completion input_cache_read input_cache_write input_cache_write_1h audio image internal_reasoning audio_output image_output request"
).split()


def all_prices(seed: int) -> dict:
    """A price of its own for everything, none like another."""
    dice = random.Random(seed)
    return {name: f"0.{dice.randrange(10**10, 10**14):018d}" for name in NAMES}


def all_rows(seed: int) -> dict:
    """The same in a row and in rows for long prompts."""
    long = [{"min_prompt_tokens": threshold, **all_prices(seed + place + 1)} for place, threshold in enumerate(THRESHOLDS)]
    return {**all_prices(seed), "overrides": long}


PRICING = {
    "priced/two": {"prompt": "0.000000123456789012", "completion": "0.00000077"},
    "priced/read": {"prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002"},
    "priced/write": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "input_cache_write": "0.00000375"},
    "priced/free-reads": {"prompt": "0.000001", "completion": "0.000002", "input_cache_read": "0", "internal_reasoning": "0.000003"},
    "priced/kinds": {
        "prompt": "0.000003",
        "completion": "0.000015",
        "input_cache_read": "0.0000003",
        "input_cache_write": "0.00000375",
        "input_cache_write_1h": "0.000006",
        "internal_reasoning": "0.0000201",
        "request": "0.000123456789",
    },
    "priced/media": {
        "prompt": "0.0000025",
        "completion": "0.00001",
        "input_cache_read": "0.00000125",
        "audio": "0.00004",
        "image": "0.000005000000000001",
        "audio_output": "0.00008",
        "image_output": "0.00003",
    },
    "priced/all": {**all_rows(10), "tiers": {"flex": all_rows(20), "priority": all_rows(30)}},
    "priced/tiers": {
        "prompt": "0.000002",
        "completion": "0.00001",
        "input_cache_read": "0.0000002",
        "tiers": {
            "flex": {"prompt": "0.000001", "completion": "0.000005"},
            "priority": {
                "prompt": "0.000004",
                "completion": "0.00002",
                "overrides": [{"min_prompt_tokens": THRESHOLDS[0], "prompt": "0.0000088", "input_cache_read": "0.0000009"}],
            },
        },
    },
    "priced/long": {
        "prompt": "0.000002",
        "completion": "0.000012",
        "input_cache_read": "0.0000002",
        "overrides": [
            {"min_prompt_tokens": THRESHOLDS[0], "prompt": "0.000004"},
            {
                "min_prompt_tokens": THRESHOLDS[1],
                "prompt": "0.000007000000000001",
                "completion": "0.000018",
                "input_cache_read": "0.0000004",
                "input_cache_write": "0.00001",
                "internal_reasoning": "0.0000199",
            },
        ],
    },
}


class PricedGateway(FaultyGateway):
    pricing = PRICING


@pytest.fixture(scope="module")
def priced(tmp_path_factory):
    unlimited = {"rpm": 1_000_000, "tpm": 1_000_000_000_000, "concurrency": 1_000, "monthly_quota": "1000000"}
    # The upstream always answers, as soon as the machine lets it.
    yield from running(PricedGateway(tmp_path_factory.mktemp("priced"), tiers={"pro": unlimited}, timeouts=PATIENT))


@dataclass(frozen=True)
class Tokens:
    """What a provider counted: both sides, and of them those of each kind."""

    prompt: int
    completion: int
    read: int = 0
    # Those that were written for an hour, too.
    write: int = 0
    hour: int = 0
    # Those that were read from the cache, too.
    audio: int = 0
    image: int = 0
    reasoning: int = 0
    audio_output: int = 0
    image_output: int = 0

    def only(self, *kinds: str) -> bool:
        """Whether there are none but of these kinds, and of none."""
        return all(getattr(self, field.name) == 0 for field in fields(self)[2:] if field.name not in kinds)


def oracle(model: str, tokens: Tokens, served: str | None) -> Decimal:
    """What the call must cost. What was read from the cache or written to it is neither sound nor image: of these there are at most as many as
    that leaves."""
    usual = {name: value for name, value in PRICING[model].items() if name not in ("overrides", "tiers")}
    rows = PRICING[model].get("overrides", [])
    if served in (tiers := PRICING[model].get("tiers", {})):
        rows = tiers[served].get("overrides", [])
        usual |= {name: value for name, value in tiers[served].items() if name != "overrides"}
    prices = dict(usual)
    for row in rows:
        if tokens.prompt > row["min_prompt_tokens"]:
            prices = usual | row
    price = {name: Decimal(value) for name, value in prices.items() if name != "min_prompt_tokens"}
    prompt, completion = price["prompt"], price["completion"]
    written = price.get("input_cache_write", prompt)
    fresh = tokens.prompt - tokens.read - tokens.write
    audio = min(tokens.audio, fresh)
    image = min(tokens.image, fresh - audio)
    made = tokens.reasoning + tokens.audio_output + tokens.image_output
    with localcontext() as context:
        context.prec = 60
        exact = (
            (fresh - audio - image) * prompt
            + tokens.read * price.get("input_cache_read", prompt)
            + (tokens.write - tokens.hour) * written
            + tokens.hour * price.get("input_cache_write_1h", written)
            + audio * price.get("audio", prompt)
            + image * price.get("image", prompt)
            + (tokens.completion - made) * completion
            + tokens.reasoning * price.get("internal_reasoning", completion)
            + tokens.audio_output * price.get("audio_output", completion)
            + tokens.image_output * price.get("image_output", completion)
            + price.get("request", Decimal(0))
        ) * MARKUP
        return exact.quantize(PICO, ROUND_HALF_EVEN)


# Each style is none for what its provider has no words for.


def openai_style(tokens: Tokens) -> dict | None:
    if tokens.hour:
        return None
    of_prompt = {"cached_tokens": tokens.read, "cache_write_tokens": tokens.write, "audio_tokens": tokens.audio, "image_tokens": tokens.image}
    of_completion = {
        "reasoning_tokens": tokens.reasoning,
        "audio_tokens": tokens.audio_output,
        "image_tokens": tokens.image_output,
        "accepted_prediction_tokens": 0,
    }
    return sides(tokens) | {"prompt_tokens_details": of_prompt, "completion_tokens_details": of_completion}


def deepseek_style(tokens: Tokens) -> dict | None:
    """No details where nothing was reasoned."""
    if not tokens.only("read", "reasoning"):
        return None
    usage = sides(tokens) | {"prompt_cache_hit_tokens": tokens.read, "prompt_cache_miss_tokens": tokens.prompt - tokens.read}
    return usage | ({"completion_tokens_details": {"reasoning_tokens": tokens.reasoning}} if tokens.reasoning else {})


def xai_style(tokens: Tokens) -> dict | None:
    """Reasoning stands beside the completion, and the total has all three."""
    if not tokens.only("read", "audio", "image", "reasoning", "audio_output"):
        return None
    return sides(tokens) | {
        "completion_tokens": tokens.completion - tokens.reasoning,
        "prompt_tokens_details": {"cached_tokens": tokens.read, "audio_tokens": tokens.audio, "image_tokens": tokens.image},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": tokens.audio_output},
    }


def anthropic_style(tokens: Tokens) -> dict | None:
    """Buckets that add up to the prompt; reasoning is within the output and not told apart."""
    if not tokens.only("read", "write", "hour"):
        return None
    return {
        "input_tokens": tokens.prompt - tokens.read - tokens.write,
        "output_tokens": tokens.completion,
        "cache_read_input_tokens": tokens.read,
        "cache_creation_input_tokens": tokens.write,
        "cache_creation": {"ephemeral_5m_input_tokens": tokens.write - tokens.hour, "ephemeral_1h_input_tokens": tokens.hour},
    }


def sides(tokens: Tokens) -> dict:
    return {"prompt_tokens": tokens.prompt, "completion_tokens": tokens.completion, "total_tokens": tokens.prompt + tokens.completion}


STYLES = (openai_style, deepseek_style, xai_style, anthropic_style)


def request(model: str, tokens: Tokens, usage: dict, streams: bool, served: str | None) -> dict:
    """Asks for an answer that reports this usage, served by this tier, and for all that it will be billed for, so that it is held for."""
    message = {"type": "text", "text": f"usage {json.dumps(usage)} " + "word " * 400}
    if "input_cache_write_1h" in PRICING[model]:
        message["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    content = [message]
    if tokens.audio:
        content.append({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})
    if tokens.image:
        content.append({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    body = {"model": model, "max_tokens": 900, "stream": streams, "messages": [{"role": "user", "content": content}]}
    if tokens.audio_output and "audio_output" in PRICING[model]:
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    if tokens.image_output and "image_output" in PRICING[model]:
        body["modalities"] = [*body.get("modalities", ["text"]), "image"]
    body |= {"stream_options": {"include_usage": True}} if streams else {}
    return body | ({"service_tier": served} if served else {})


def billed(model: str, tokens: Tokens, style) -> Tokens:
    """The tokens, with what was written for as long as was asked where the report does not say for how long."""
    is_unsaid = style is openai_style and "input_cache_write_1h" in PRICING[model]
    return replace(tokens, hour=tokens.write) if is_unsaid else tokens


def call(client: httpx.Client, body: dict) -> tuple[str, Decimal]:
    """The request's id, and the cost that the answer tells."""
    answer = client.post("/llm/chat", json=body)
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: {")] if body["stream"] else [answer.text]
    usages = [usage for event in events if (usage := json.loads(event, parse_float=Decimal).get("usage"))]
    return answer.headers["x-request-id"], Decimal(usages[-1]["cost"])


KINDS = (
    {},
    {"read": 1},
    {"write": 1},
    {"reasoning": 1},
    {"audio": 1},
    {"image": 1},
    {"audio_output": 1},
    {"image_output": 1},
    {"read": 200, "reasoning": 7},
    {"read": 200, "write": 50, "reasoning": 7},
    {"read": 250, "write": 49, "reasoning": 3},
    {"audio": 120, "image": 60, "reasoning": 3, "audio_output": 5},
    {"read": 100, "write": 19, "audio": 120, "image": 60, "reasoning": 3, "audio_output": 5, "image_output": 8},
    # Sound and images that were read from the cache, some or all.
    {"read": 250, "audio": 200},
    {"read": 150, "audio": 100, "image": 199},
    {"write": 1, "hour": 1},
    {"read": 200, "write": 50, "hour": 1},
    {"read": 200, "write": 50, "hour": 49},
    {"read": 249, "write": 50, "hour": 50},
)


def cases():
    around = [threshold + step for threshold in THRESHOLDS for step in (-1, 0, 1)]
    for model, prompt, kinds, style in itertools.product(PRICING, around, KINDS, STYLES):
        for served in [None, *PRICING[model].get("tiers", {})]:
            yield model, Tokens(prompt, 16, **kinds), style, served
    dice = random.Random(SEED)
    for _ in range(RANDOM_CALLS):
        yield any_case(dice)


def any_case(dice: random.Random):
    prompt, completion = dice.randrange(1, 1_000), dice.randrange(1, 900)

    def some(most: int) -> int:
        """None, in half of all cases."""
        return dice.choice((0, dice.randrange(most + 1)))

    read = some(prompt)
    write = some(prompt - read)
    audio, reasoning = some(prompt), some(completion)
    audio_output = some(completion - reasoning)
    tokens = Tokens(
        prompt,
        completion,
        read=read,
        write=write,
        hour=some(write),
        audio=audio,
        image=some(prompt - audio),
        reasoning=reasoning,
        audio_output=audio_output,
        image_output=some(completion - reasoning - audio_output),
    )
    model = dice.choice(list(PRICING))
    served = dice.choice([None, "default", *PRICING[model].get("tiers", {})]) if "tiers" in PRICING[model] else None
    return model, tokens, dice.choice([style for style in STYLES if style(tokens)] or [None]), served


def test_every_kind_threshold_and_style_costs_what_the_oracle_says(priced):
    credits = Decimal(10_000)
    account = priced.account(credits=str(credits))
    expected: dict[str, Decimal] = {}
    told: dict[str, Decimal] = {}
    headers = {"authorization": f"Bearer {account.key}"}
    with httpx.Client(base_url=priced.base_url, headers=headers, timeout=CALL_SECONDS_MAX) as client:
        for (model, tokens, style, served), streams in itertools.product(cases(), (False, True)):
            if style is None or (usage := style(tokens)) is None:
                continue
            name, told_cost = call(client, request(model, tokens, usage, streams, served))
            expected[name], told[name] = oracle(model, billed(model, tokens, style), served), told_cost
            assert told[name] == expected[name], (model, tokens, style.__name__, served, streams)
    print(f"{len(expected)} calls")
    assert len(expected) > CALLS_MIN
    spent = sum(expected.values())
    wait_for(account.balance, lambda balance: balance == credits - spent, f"{spent} spent")
    listed = priced.command("ledger", "receipts", account.name, "--limit", str(2 * len(expected)))["receipts"]
    receipts = {receipt["id"]: receipt for receipt in listed}
    wrong = {name: (receipts[name], cost) for name, cost in expected.items() if Decimal(receipts[name]["cost"]) != cost}
    assert not wrong and len(receipts) == len(expected), wrong
    assert all(Decimal(receipt["held"]) >= Decimal(receipt["cost"]) for receipt in receipts.values())

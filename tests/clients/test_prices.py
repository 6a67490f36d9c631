"""Prices by kind of token and by length of the prompt, against an oracle of its own: the fractions of decimal text, rounded once.

Providers report in several styles, streamed and whole; what is billed is compared to the last digit of the receipt and of the balance.
"""

import itertools
import json
import random
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import httpx
import pytest
from conftest import CALL_SECONDS_MAX, Account, running, wait_for
from faulty import FaultyGateway

MARKUP = Decimal("1.15")
PICO = Decimal("0.000000000001")
SEED = 20261124
RANDOM_CALLS = 300
THRESHOLDS = (300, 900)

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
    yield from running(PricedGateway(tmp_path_factory.mktemp("priced")))


def oracle(model: str, prompt: int, completion: int, read: int, write: int, reasoning: int, hour: int = 0, served: str | None = None) -> Decimal:
    """What the call must cost. `hour` of the written tokens were written for an hour."""
    usual = {name: value for name, value in PRICING[model].items() if name not in ("overrides", "tiers")}
    rows = PRICING[model].get("overrides", [])
    if served in (tiers := PRICING[model].get("tiers", {})):
        rows = tiers[served].get("overrides", [])
        usual |= {name: value for name, value in tiers[served].items() if name != "overrides"}
    prices = dict(usual)
    for row in rows:
        if prompt > row["min_prompt_tokens"]:
            prices = usual | row
    price = {name: Decimal(value) for name, value in prices.items() if name != "min_prompt_tokens"}
    written = price.get("input_cache_write", price["prompt"])
    with localcontext() as context:
        context.prec = 60
        exact = (
            (prompt - read - write) * price["prompt"]
            + read * price.get("input_cache_read", price["prompt"])
            + (write - hour) * written
            + hour * price.get("input_cache_write_1h", written)
            + price.get("request", Decimal(0))
            + (completion - reasoning) * price["completion"]
            + reasoning * price.get("internal_reasoning", price["completion"])
        ) * MARKUP
        return exact.quantize(PICO, ROUND_HALF_EVEN)


def openai_style(prompt: int, completion: int, read: int, write: int, reasoning: int) -> dict:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def deepseek_style(prompt: int, completion: int, read: int, write: int, reasoning: int) -> dict | None:
    """It has no word for what was written, and no details where nothing was reasoned."""
    if write:
        return None
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    usage |= {"prompt_cache_hit_tokens": read, "prompt_cache_miss_tokens": prompt - read}
    return usage | ({"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {})


def xai_style(prompt: int, completion: int, read: int, write: int, reasoning: int) -> dict | None:
    """Reasoning stands beside the completion, and the total has all three."""
    if write:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion - reasoning,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    } if 2 * reasoning <= completion else None


def anthropic_style(prompt: int, completion: int, read: int, write: int, reasoning: int, hour: int = 0) -> dict | None:
    """Buckets that add up to the prompt; reasoning is within the output and not told apart."""
    if reasoning:
        return None
    return {
        "input_tokens": prompt - read - write,
        "output_tokens": completion,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": {"ephemeral_5m_input_tokens": write - hour, "ephemeral_1h_input_tokens": hour},
    }


STYLES = (openai_style, deepseek_style, xai_style, anthropic_style)


def call(account: Account, model: str, usage: dict, streams: bool, served: str | None = None) -> tuple[str, Decimal]:
    """Asks for an answer that reports this usage, and for this tier, which the provider says it was served by; the request's id, and the cost
    that the answer tells."""
    text = f"usage {json.dumps(usage)} " + "word " * 400
    # All that a request may ask for, so that it is held for.
    message = {"type": "text", "text": text}
    if "input_cache_write_1h" in PRICING[model]:
        message["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    body = {"model": model, "max_tokens": 900, "stream": streams, "messages": [{"role": "user", "content": [message]}]}
    body |= {"stream_options": {"include_usage": True}} if streams else {}
    body |= {"service_tier": served} if served else {}
    answer = httpx.post(
        f"{account.gateway.base_url}/llm/chat", json=body, headers={"authorization": f"Bearer {account.key}"}, timeout=CALL_SECONDS_MAX
    )
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: {")] if streams else [answer.text]
    usages = [usage for event in events if (usage := json.loads(event, parse_float=Decimal).get("usage"))]
    return answer.headers["x-request-id"], Decimal(usages[-1]["cost"])


def cases():
    kinds = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (200, 50, 7), (250, 49, 3)]
    around = [threshold + step for threshold in THRESHOLDS for step in (-1, 0, 1)]
    for model, prompt, (read, write, reasoning), style in itertools.product(PRICING, around, kinds, STYLES):
        # Those with rows for long prompts everywhere, the others at one length: theirs do not depend on it.
        if model in ("priced/long", "priced/tiers") or prompt == around[0]:
            for served in [None, *PRICING[model].get("tiers", {})]:
                yield model, (prompt, 16, read, write, reasoning), style, served
    for hour in (0, 1, 49, 50):
        yield "priced/kinds", (300, 16, 200, 50, 0, hour), anthropic_style, None
    dice = random.Random(SEED)
    for _ in range(RANDOM_CALLS):
        prompt, completion = dice.randrange(1, 1_000), dice.randrange(1, 900)
        read = dice.randrange(prompt + 1)
        write = dice.choice((0, dice.randrange(prompt - read + 1)))
        model = dice.choice(list(PRICING))
        served = dice.choice([None, "default", *PRICING[model].get("tiers", {})]) if "tiers" in PRICING[model] else None
        yield model, (prompt, completion, read, write, dice.randrange(completion + 1)), dice.choice(STYLES), served


def test_every_kind_threshold_and_style_costs_what_the_oracle_says(priced):
    account = priced.account(credits="100")
    expected: dict[str, Decimal] = {}
    told: dict[str, Decimal] = {}
    for number, (model, tokens, style, served) in enumerate(cases()):
        if (usage := style(*tokens)) is not None:
            request, told_cost = call(account, model, usage, number % 2 == 0, served)
            expected[request], told[request] = oracle(model, *tokens, served=served), told_cost
    assert len(expected) > 400 and told == expected
    spent = sum(expected.values())
    wait_for(account.balance, lambda balance: balance == 100 - spent, f"{spent} spent")
    listed = priced.command("ledger", "receipts", account.name, "--limit", "1000")["receipts"]
    receipts = {receipt["id"]: receipt for receipt in listed}
    wrong = {name: (receipts[name], cost) for name, cost in expected.items() if Decimal(receipts[name]["cost"]) != cost}
    assert not wrong and len(receipts) == len(expected), wrong
    assert all(Decimal(receipt["held"]) >= Decimal(receipt["cost"]) for receipt in receipts.values())

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


def oracle(model: str, prompt: int, completion: int, read: int, write: int, reasoning: int) -> Decimal:
    """What the call must cost."""
    prices = dict(PRICING[model])
    for row in prices.pop("overrides", []):
        if prompt > row["min_prompt_tokens"]:
            prices |= PRICING[model] | row
    price = {name: Decimal(value) for name, value in prices.items() if name not in ("min_prompt_tokens", "overrides")}
    with localcontext() as context:
        context.prec = 60
        exact = (
            (prompt - read - write) * price["prompt"]
            + read * price.get("input_cache_read", price["prompt"])
            + write * price.get("input_cache_write", price["prompt"])
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


STYLES = (openai_style, deepseek_style, xai_style)


def call(account: Account, model: str, usage: dict, streams: bool) -> str:
    """Asks for an answer that reports this usage; the request's id."""
    text = f"usage {json.dumps(usage)} " + "word " * 400
    body = {"model": model, "max_tokens": 900, "stream": streams, "messages": [{"role": "user", "content": text}]}
    answer = httpx.post(
        f"{account.gateway.base_url}/llm/chat", json=body, headers={"authorization": f"Bearer {account.key}"}, timeout=CALL_SECONDS_MAX
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-request-id"]


def cases():
    kinds = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (200, 50, 7), (250, 49, 3)]
    around = [threshold + step for threshold in THRESHOLDS for step in (-1, 0, 1)]
    for model, prompt, (read, write, reasoning), style in itertools.product(PRICING, around, kinds, STYLES):
        # The long model everywhere, the others at one length: theirs do not depend on it.
        if model == "priced/long" or prompt == around[0]:
            yield model, (prompt, 16, read, write, reasoning), style
    dice = random.Random(SEED)
    for _ in range(RANDOM_CALLS):
        prompt, completion = dice.randrange(1, 1_000), dice.randrange(1, 900)
        read = dice.randrange(prompt + 1)
        write = dice.choice((0, dice.randrange(prompt - read + 1)))
        yield dice.choice(list(PRICING)), (prompt, completion, read, write, dice.randrange(completion + 1)), dice.choice(STYLES)


def test_every_kind_threshold_and_style_costs_what_the_oracle_says(priced):
    account = priced.account(credits="100")
    expected: dict[str, Decimal] = {}
    for number, (model, tokens, style) in enumerate(cases()):
        if (usage := style(*tokens)) is not None:
            expected[call(account, model, usage, number % 2 == 0)] = oracle(model, *tokens)
    assert len(expected) > 250
    spent = sum(expected.values())
    wait_for(account.balance, lambda balance: balance == 100 - spent, f"{spent} spent")
    listed = priced.command("ledger", "receipts", account.name, "--limit", "1000")["receipts"]
    receipts = {receipt["id"]: receipt for receipt in listed}
    wrong = {name: (receipts[name], cost) for name, cost in expected.items() if Decimal(receipts[name]["cost"]) != cost}
    assert not wrong and len(receipts) == len(expected), wrong
    assert all(Decimal(receipt["held"]) >= Decimal(receipt["cost"]) for receipt in receipts.values())

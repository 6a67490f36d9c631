"""Upstreams that break their answers: openai-python raises its API error, in time, and what was delivered is billed."""

import json
import time
from decimal import Decimal

import httpx
import openai
import pytest
from conftest import CALL_SECONDS_MAX, running, wait_for
from faulty import COMPLETION_PRICE, EVENTS, MODEL, PROMPT_PRICE, SECRET, STREAM, TEXTS, USAGE, WHOLE, FaultyGateway, event

# Far below the client's own time-out, so that a hang is a failure, and far above the gateway's patience with a silent upstream.
ERROR_SECONDS_MAX = CALL_SECONDS_MAX / 2
ENDS = [len(b"".join(map(event, EVENTS[:count]))) for count in range(len(EVENTS) + 1)]
# Before, within and after each event.
CUTS = sorted({0, 7, *ENDS[1:4], *(end + 60 for end in ENDS[:6])})


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    yield from running(FaultyGateway(tmp_path_factory.mktemp("faulty")))


@pytest.fixture
def account(faulty):
    return faulty.account()


def asked(fault: str, **options) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": fault}], **options}


def failure(call) -> openai.APIError:
    """The error that the call raises. The client's own time-out would mean that it hung; any other exception fails the test."""
    begun = time.monotonic()
    with pytest.raises(openai.APIError) as caught:
        call()
    assert not isinstance(caught.value, openai.APITimeoutError)
    assert time.monotonic() - begun < ERROR_SECONDS_MAX
    assert SECRET not in f"{caught.value} {caught.value.body}"
    return caught.value


def broken_stream(account, fault: str) -> tuple[str, openai.APIError]:
    """The text that a stream delivers before the error that it raises."""
    texts = []

    def read():
        for chunk in account.client().chat.completions.create(**asked(fault, stream=True)):
            texts.extend(choice.delta.content or "" for choice in chunk.choices)

    error = failure(read)
    return "".join(texts), error


def billed(account) -> tuple[int, int]:
    """Prompt and completion tokens that were paid for, once nothing is held any more."""
    balance = wait_for(lambda: account.read("/llm/balance"), lambda balance: balance["held"] == 0, "the end of every hold")
    usage = account.usage()
    cost = Decimal(usage["total_cost"])
    assert Decimal(balance["balance"]) == 1 - cost
    prompt_price, completion_price = Decimal(PROMPT_PRICE), Decimal(COMPLETION_PRICE)
    completion = (cost - usage["total_tokens"] * prompt_price) / (completion_price - prompt_price)
    assert completion == int(completion), usage
    return usage["total_tokens"] - int(completion), int(completion)


def check_bill(account, delivered: str):
    """Nothing delivered costs nothing; else the prompt is paid, by the gateway's own count, and each text is a token."""
    count = next(count for count in range(len(TEXTS) + 1) if "".join(TEXTS[:count]) == delivered)
    prompt, completion = billed(account)
    assert completion == count
    assert (6 < prompt < 20) if count else prompt == 0


def check_raw(account, fault: str):
    """To a client that knows nothing but the protocol: whole events of JSON, one of them the error, and `[DONE]`."""
    headers = {"authorization": f"Bearer {account.key}"}
    url = account.gateway.base_url + "/llm/chat/stream"
    answer = httpx.post(url, json=asked(fault), headers=headers, timeout=ERROR_SECONDS_MAX)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream"
    *events, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    said = [json.loads(line.removeprefix("data: ")) for line in events]
    assert [chunk["error"]["code"] for chunk in said if "error" in chunk] == [502]
    assert said[-1]["choices"][0]["finish_reason"] == "error" and SECRET not in answer.text


# --- Streams --------------------------------------------------------------------------------------------------------------------------


def test_stream_without_a_fault(account):
    chunks = list(account.client().chat.completions.create(**asked("none", stream=True)))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == "".join(TEXTS)
    assert billed(account) == (USAGE["prompt_tokens"], USAGE["completion_tokens"])


def test_stream_without_a_report(account):
    list(account.client().chat.completions.create(**asked("no-usage", stream=True)))
    check_bill(account, "".join(TEXTS))


@pytest.mark.parametrize("after", CUTS)
@pytest.mark.parametrize("fault", ["cut", "stall", "long-length"])
def test_stream_that_breaks_off(account, fault, after):
    text, error = broken_stream(account, f"{fault}/{after}")
    assert type(error) is openai.APIError
    assert error.body["code"] == 502 and error.type == "upstream_error"
    assert text == "".join(TEXTS[: sum(end <= after for end in ENDS[1:5])])
    check_bill(account, text)


@pytest.mark.parametrize("fault", ["cut", "stall", "long-length", "short-length"])
def test_stream_that_breaks_off_ends_with_done(account, fault):
    check_raw(account, f"{fault}/{ENDS[2] + 60}")


@pytest.mark.parametrize("after", CUTS[2::2])
def test_stream_that_is_reset(account, after):
    # A reset overtakes what was sent before it, even the head; then there is a status.
    text, error = broken_stream(account, f"reset/{after}")
    assert type(error) is openai.APIError or error.status_code == 502
    assert error.type == "upstream_error"
    check_bill(account, text)


def test_stream_whose_length_is_too_short(account):
    text, error = broken_stream(account, f"short-length/{ENDS[2] + 60}")
    assert type(error) is openai.APIError and error.body["code"] == 502
    assert text == "".join(TEXTS[:2])
    check_bill(account, text)


@pytest.mark.parametrize("after", [0, 2])
def test_stream_with_an_error_event(account, after):
    text, error = broken_stream(account, f"error-event/{after}")
    assert type(error) is openai.APIError and error.body["code"] == 502
    assert text == "".join(TEXTS[:after])
    check_bill(account, text)
    check_raw(account, f"error-event/{after}")


@pytest.mark.parametrize("fault", ["error", "html", "gzip", "nothing", "short-length/0"])
def test_stream_that_is_none(account, fault):
    text, error = broken_stream(account, fault)
    assert type(error) is openai.InternalServerError and error.status_code in (500, 502)
    assert error.type == "upstream_error" and text == ""
    check_bill(account, "")


def test_page_of_html_that_is_called_a_stream(account):
    text, error = broken_stream(account, "disguised-html")
    assert type(error) is openai.APIError and error.body["code"] == 502
    assert text == ""
    check_bill(account, "")


# --- Whole answers --------------------------------------------------------------------------------------------------------------------


def test_answer_without_a_fault(account):
    answer = account.client().chat.completions.create(**asked("none"))
    assert answer.choices[0].message.content == "".join(TEXTS)
    assert billed(account) == (USAGE["prompt_tokens"], USAGE["completion_tokens"])


@pytest.mark.parametrize("after", [0, 1, 60, WHOLE.index(b"One") + 3, len(WHOLE) - 1])
@pytest.mark.parametrize("fault", ["cut", "reset", "stall", "long-length", "short-length"])
def test_answer_that_breaks_off(account, fault, after):
    error = failure(lambda: account.client().chat.completions.create(**asked(f"{fault}/{after}")))
    assert type(error) is openai.InternalServerError and error.status_code == 502
    assert error.type == "upstream_error"
    assert billed(account) == (0, 0)


@pytest.mark.parametrize("fault", ["cut", "long-length"])
def test_answer_that_breaks_off_at_both_retries_of_the_client(account, fault):
    client = account.client(max_retries=2)
    asked_before = account.gateway.upstream.asked
    error = failure(lambda: client.chat.completions.create(**asked(f"{fault}/{len(WHOLE) - 1}")))
    assert type(error) is openai.InternalServerError and error.status_code == 502
    assert account.gateway.upstream.asked == asked_before + 3
    assert billed(account) == (0, 0)


@pytest.mark.parametrize("fault", ["error", "error-event", "html", "disguised-html", "gzip", "nothing"])
def test_answer_that_is_none(account, fault):
    error = failure(lambda: account.client().chat.completions.create(**asked(fault)))
    assert type(error) is openai.InternalServerError and error.status_code in (500, 502)
    assert error.type == "upstream_error"
    assert billed(account) == (0, 0)

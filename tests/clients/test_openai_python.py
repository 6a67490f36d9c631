"""openai-python, given only base_url and a key: what works against a provider works here, and is billed to the last digit."""

import asyncio
import json
import uuid
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import openai
import pytest
import yaml
from conftest import decimals, wait_for

CHAT = "simulated/chat"
FREE_OF_CHARGE = "simulated/mini"
PRO = "simulated/pro"
ENTERPRISE = "simulated/enterprise"
EMBED = "simulated/embed"
NESTED = "simulated/vendor/model:free"

HELLO = [{"role": "user", "content": "Say hello to the reader, please."}]
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "read_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def said(words: str) -> list[dict]:
    return [{"role": "user", "content": words}]


def text_of(chunks) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


# --- Idempotency ---------------------------------------------------------------------------------------------------------------------


def test_a_call_with_an_idempotency_key_is_made_once(client):
    def call(words: str):
        key = {"Idempotency-Key": "order-4711"}
        with_head = client.with_options(max_retries=5).chat.completions.with_raw_response
        return with_head.create(model=CHAT, messages=said(words), extra_headers=key)

    first, again = call("Say hello."), call("Say hello.")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-original-request-id"] == first.headers["x-request-id"]
    assert again.content == first.content
    assert again.parse().choices[0].message.content
    with pytest.raises(openai.ConflictError) as caught:
        call("Say something else.")
    assert caught.value.type == "idempotency_key_conflict"
    # The client obeyed: it has asked once.
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.request.headers.get("x-stainless-retry-count") == "0"


def test_a_stream_with_an_idempotency_key_is_given_again(client):
    def stream():
        key = {"Idempotency-Key": "order-4712"}
        streamed = client.with_options(max_retries=5).chat.completions.create(
            model=CHAT, messages=HELLO, stream=True, extra_headers=key
        )
        return [chunk.model_dump() for chunk in streamed]

    assert stream() == stream()


# --- Chat -----------------------------------------------------------------------------------------------------------------------------


def test_chat(client):
    answer = client.chat.completions.create(model=CHAT, messages=HELLO)
    assert answer.object == "chat.completion"
    [choice] = answer.choices
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert uuid.UUID(answer._request_id).version == 7


def test_stream(client):
    chunks = list(client.chat.completions.create(model=CHAT, messages=HELLO, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant" and not chunks[0].choices[0].delta.content
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    whole = client.chat.completions.create(model=CHAT, messages=HELLO)
    assert text_of(chunks) == whole.choices[0].message.content


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}], ids=["unset", "false"])
def test_stream_that_did_not_ask_for_usage_gets_no_usage_chunk(client, options):
    chunks = list(client.chat.completions.create(model=CHAT, messages=HELLO, stream=True, **options))
    assert text_of(chunks)
    assert all(len(chunk.choices) == 1 for chunk in chunks)


def test_stream_with_include_usage(client):
    with_usage = {"include_usage": True}
    chunks = list(client.chat.completions.create(model=CHAT, messages=HELLO, stream=True, stream_options=with_usage))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens > 0 and chunks[-1].usage.completion_tokens > 0
    assert all(chunk.choices and chunk.usage is None for chunk in chunks[:-1])


def test_stream_helper_of_the_client(client):
    with client.chat.completions.stream(model=CHAT, messages=HELLO) as stream:
        heard = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert heard == final.choices[0].message.content != ""


def test_stream_that_the_client_leaves_is_closed(client):
    with client.chat.completions.create(model=CHAT, messages=said("simulate:tokens=400 Go on."), stream=True) as stream:
        assert next(iter(stream)).object == "chat.completion.chunk"
    assert client.chat.completions.create(model=CHAT, messages=HELLO).choices[0].message.content


def test_tool_call_deltas(client):
    asked = {"model": CHAT, "messages": said("What is the weather in Nairobi?"), "tools": [WEATHER_TOOL], "tool_choice": "required"}
    chunks = list(client.chat.completions.create(**asked, stream=True))
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or []]
    assert deltas[0].id and deltas[0].type == "function" and deltas[0].function.name == "read_weather"
    assert {delta.index for delta in deltas} == {0}
    assert all(delta.id is None and delta.function.name is None for delta in deltas[1:])
    arguments = "".join(delta.function.arguments or "" for delta in deltas)
    assert isinstance(json.loads(arguments), dict)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"

    whole = client.chat.completions.create(**asked).choices[0]
    assert whole.finish_reason == "tool_calls"
    [call] = whole.message.tool_calls
    assert call.function.name == "read_weather" and json.loads(call.function.arguments) == json.loads(arguments)

    result = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees, sunny"}
    conversation = [*asked["messages"], whole.message.model_dump(exclude_none=True), result]
    final = client.chat.completions.create(model=CHAT, messages=conversation, tools=[WEATHER_TOOL])
    assert final.choices[0].finish_reason == "stop" and final.choices[0].message.content


# --- Embeddings and models ------------------------------------------------------------------------------------------------------------


def test_embeddings_of_one_text(client):
    # The client asks for base64 by itself and decodes it.
    answer = client.embeddings.create(model=EMBED, input="a toll gate")
    assert answer.object == "list"
    [item] = answer.data
    assert item.index == 0 and item.object == "embedding" and len(item.embedding) == 1536
    assert all(isinstance(number, float) for number in item.embedding)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0


def test_embeddings_of_several_texts_keep_their_order(client):
    texts = ["a toll gate", "a river", "a mountain railway"]
    answer = client.embeddings.create(model=EMBED, input=texts)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert all(len(item.embedding) == 1536 for item in answer.data)
    for text, item in zip(texts, answer.data, strict=True):
        alone = client.embeddings.create(model=EMBED, input=text).data[0].embedding
        assert item.embedding == alone, text


def test_embeddings_as_numbers(client):
    as_base64 = client.embeddings.create(model=EMBED, input="a toll gate").data[0].embedding
    as_numbers = client.embeddings.create(model=EMBED, input="a toll gate", encoding_format="float").data[0].embedding
    assert as_numbers == pytest.approx(as_base64, abs=1e-6)


def test_models_list_has_what_the_tier_may_use(client):
    models = list(client.models.list())
    assert {model.object for model in models} == {"model"}
    assert all(isinstance(model.created, int) and model.owned_by for model in models)
    ids = {model.id for model in models}
    assert {CHAT, FREE_OF_CHARGE, PRO, EMBED, NESTED} <= ids
    assert ENTERPRISE not in ids


@pytest.mark.parametrize("name", [CHAT, NESTED])
def test_models_retrieve_of_an_id_with_slashes(client, name):
    # The client sends the slashes as %2F.
    model = client.models.retrieve(name)
    assert model.id == name and model.object == "model"


def test_chat_with_an_id_with_more_slashes(client):
    assert client.chat.completions.create(model=NESTED, messages=HELLO).choices[0].message.content


# --- The asynchronous client ----------------------------------------------------------------------------------------------------------


def test_async_client(gateway):
    async def scenario():
        async with gateway.demo.async_client() as client:
            whole = await client.chat.completions.create(model=CHAT, messages=HELLO)
            stream = await client.chat.completions.create(
                model=CHAT, messages=HELLO, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert text_of(chunks) == whole.choices[0].message.content
            assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
            embedded = await client.embeddings.create(model=EMBED, input=["one", "two"])
            assert [len(item.embedding) for item in embedded.data] == [1536, 1536]
            assert (await client.models.retrieve(NESTED)).id == NESTED
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="simulated/none", messages=HELLO)

    asyncio.run(scenario())


def test_async_calls_at_once(gateway):
    async def one(client, number):
        # Each answer has a length and a vector of its own, so another call's would be seen.
        tokens = 5 + number
        stream = await client.chat.completions.create(
            model=CHAT, messages=said(f"simulate:tokens={tokens} Count."), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.completion_tokens == tokens
        assert len({chunk.id for chunk in chunks}) == 1
        return chunks[0].id

    async def scenario():
        async with gateway.demo.async_client() as client:
            texts = [f"text {number}" for number in range(8)]
            alone = [(await client.embeddings.create(model=EMBED, input=text)).data[0].embedding for text in texts]
            ids = await asyncio.gather(*(one(client, number) for number in range(8)))
            at_once = await asyncio.gather(*(client.embeddings.create(model=EMBED, input=text) for text in texts))
            assert [answer.data[0].embedding for answer in at_once] == alone
            assert len({tuple(embedding) for embedding in alone}) == len(texts)
            return ids

    assert len(set(asyncio.run(scenario()))) == 8


# --- Errors arrive as the client's exceptions ------------------------------------------------------------------------------------------


def refused(expected, status: int, kind: str, call) -> openai.APIStatusError:
    """The call raises exactly this exception, with everything a client reads from it."""
    with pytest.raises(expected) as caught:
        call()
    return checked(caught.value, expected, status, kind)


def checked(error, expected, status: int, kind: str) -> openai.APIStatusError:
    assert type(error) is expected
    assert error.status_code == status
    assert error.type == kind
    assert error.body["code"] == status and isinstance(error.body["code"], int)
    assert isinstance(error.body["message"], str) and error.body["message"]
    assert error.request_id == error.response.headers["x-request-id"]
    assert uuid.UUID(error.request_id).version == 7
    return error


@pytest.mark.parametrize("key", ["tg_wrong", "sk-not-even-the-prefix", "tg_" + "a" * 60])
def test_wrong_key(client, key):
    wrong = client.with_options(api_key=key)
    refused(openai.AuthenticationError, 401, "authentication_error", lambda: wrong.chat.completions.create(model=CHAT, messages=HELLO))
    refused(openai.AuthenticationError, 401, "authentication_error", lambda: wrong.embeddings.create(model=EMBED, input="a"))
    refused(openai.AuthenticationError, 401, "authentication_error", lambda: wrong.models.list())


def test_revoked_key(gateway):
    account = gateway.account()
    client = account.client()
    assert client.chat.completions.create(model=CHAT, messages=HELLO).choices
    gateway.command("key", "revoke", account.key)
    wait_for(lambda: account.ask("/llm/balance").status_code, lambda status: status == 401, "the revocation")
    refused(openai.AuthenticationError, 401, "authentication_error", lambda: client.chat.completions.create(model=CHAT, messages=HELLO))


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_model(client, stream):
    refused(
        openai.NotFoundError,
        404,
        "not_found_error",
        lambda: client.chat.completions.create(model="simulated/none", messages=HELLO, stream=stream),
    )


def test_unknown_model_elsewhere(client):
    refused(openai.NotFoundError, 404, "not_found_error", lambda: client.embeddings.create(model="simulated/none", input="a"))
    refused(openai.NotFoundError, 404, "not_found_error", lambda: client.models.retrieve("simulated/vendor/none"))


BAD_BODIES = {
    "no messages": {"model": CHAT},
    "no model": {"messages": HELLO},
    "empty messages": {"model": CHAT, "messages": []},
    "messages of another type": {"model": CHAT, "messages": "hello"},
    "stream of another type": {"model": CHAT, "messages": HELLO, "stream": "yes"},
    "max_tokens of 0": {"model": CHAT, "messages": HELLO, "max_tokens": 0},
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_bad_body(client, body):
    # The typed methods would not let it out.
    refused(
        openai.BadRequestError,
        400,
        "invalid_request_error",
        lambda: client.post("/chat/completions", body=body, cast_to=object),
    )


def test_model_above_the_tier(gateway, client):
    refused(
        openai.PermissionDeniedError,
        403,
        "permission_error",
        lambda: client.chat.completions.create(model=ENTERPRISE, messages=HELLO),
    )
    free = gateway.account(tier="free").client()
    assert PRO not in {model.id for model in free.models.list()}
    refused(openai.PermissionDeniedError, 403, "permission_error", lambda: free.chat.completions.create(model=PRO, messages=HELLO))


@pytest.mark.parametrize("stream", [False, True])
def test_no_credit(gateway, stream):
    account = gateway.account(credits="0")
    # With the client's own retries on: it must not try again what only money can change.
    client = account.client(max_retries=2)
    error = refused(
        openai.APIStatusError,
        402,
        "insufficient_credits",
        lambda: client.chat.completions.create(model=CHAT, messages=HELLO, stream=stream),
    )
    assert "retry-after" not in error.response.headers
    assert error.response.request.headers["x-stainless-retry-count"] == "0"
    # What costs nothing needs no credit.
    assert client.chat.completions.create(model=FREE_OF_CHARGE, messages=HELLO).choices[0].message.content
    assert account.balance() == 0


def test_a_shortage_by_running_calls_is_tried_again(gateway):
    tokens_max = 4_000
    # For one such call and half of another: a prompt's bound is far less than half of the maximum.
    _, completion_price = gateway.demo.list_prices()[CHAT]
    account = gateway.account(credits=format(completion_price * tokens_max * 3 / 2, "f"))
    first = {"model": CHAT, "messages": said("simulate:stall=3 Go on."), "max_tokens": tokens_max, "stream": True}
    statuses = []
    with account.client().chat.completions.create(**first) as running:
        chunks = iter(running)
        next(chunks)

        def leave(response):
            statuses.append(response.status_code)
            if response.status_code == 402:
                running.close()
                wait_for(lambda: account.read("/llm/balance")["held"], lambda held: held == 0, "the end of the hold")

        with openai.DefaultHttpxClient(event_hooks={"response": [leave]}) as http_client:
            client = account.client(max_retries=2, http_client=http_client)
            answer = client.chat.completions.create(model=CHAT, messages=HELLO, max_tokens=tokens_max)
    assert statuses == [402, 200]
    assert answer.choices[0].message.content


def test_quota_exceeded(gateway):
    client = gateway.account(account_options=("--monthly-quota", "0.000000000001")).client()
    refused(openai.APIStatusError, 402, "quota_exceeded", lambda: client.chat.completions.create(model=CHAT, messages=HELLO))


def test_rate_limit(gateway):
    account = gateway.account(key_options=("--rpm", "2"))
    client = account.client()
    answers, errors = [], []
    # More calls than two windows allow, so that a window which ends meanwhile changes nothing.
    for _ in range(6):
        try:
            answers.append(client.chat.completions.create(model=FREE_OF_CHARGE, messages=HELLO))
        except openai.RateLimitError as error:
            errors.append(error)
    assert len(answers) >= 2 and errors
    error = checked(errors[0], openai.RateLimitError, 429, "rate_limit_error")
    assert 0 < float(error.response.headers["retry-after"]) <= 60
    assert error.response.headers["x-ratelimit-limit-requests"] == "2"
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"


# --- The provider fails ----------------------------------------------------------------------------------------------------------------


def test_rate_limit_of_the_provider(gateway):
    account = gateway.account()
    client = account.client()
    error = refused(
        openai.RateLimitError,
        429,
        "rate_limit_error",
        lambda: client.chat.completions.create(model=CHAT, messages=said("simulate:429=7 Hello")),
    )
    assert float(error.response.headers["retry-after"]) > 0
    assert account.balance() == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("word", "status", "kind"),
    [
        ("simulate:500", 500, "upstream_error"),
        ("simulate:503", 500, "upstream_error"),
        # No answer at all: the connection is closed before the first byte.
        ("simulate:cut=0", 502, "upstream_error"),
    ],
)
def test_failure_of_the_provider(gateway, word, status, kind, stream):
    account = gateway.account()
    client = account.client()
    refused(
        openai.InternalServerError,
        status,
        kind,
        lambda: client.chat.completions.create(model=CHAT, messages=said(f"{word} Hello"), stream=stream),
    )
    assert account.balance() == 1


def test_refusal_by_the_provider_keeps_its_status(client):
    refused(
        openai.BadRequestError,
        400,
        "invalid_request_error",
        lambda: client.chat.completions.create(model=CHAT, messages=said("simulate:400 Hello")),
    )


def test_stream_that_the_provider_cuts(gateway):
    account = gateway.account()
    stream = account.client().chat.completions.create(model=CHAT, messages=said("simulate:cut=5 Tell me a story."), stream=True)
    chunks = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in stream:
            chunks.append(chunk)
    # An event in the stream, not a torn connection and not a status: the exception itself and none of its kinds.
    assert type(caught.value) is openai.APIError
    assert caught.value.body["code"] == 502 and caught.value.type == "upstream_error" and caught.value.message
    assert text_of(chunks)
    # What was delivered is paid: the prompt and the tokens that came.
    usage = account.settled_usage(1)
    assert usage["total_requests"] == 1
    assert account.balance() == 1 - Decimal(usage["total_cost"]) < 1


# --- Billing ---------------------------------------------------------------------------------------------------------------------------


def exact_cost(prices, model, prompt_tokens, completion_tokens=0) -> Decimal:
    prompt, completion = prices[model]
    return (prompt_tokens * prompt + completion_tokens * completion).quantize(Decimal("1e-12"), ROUND_HALF_EVEN)


def test_balance_falls_by_the_formula_to_the_last_digit(gateway):
    funds = Decimal("1.000000000001")
    account = gateway.account(credits=str(funds))
    client = account.client()
    prices = account.list_prices()
    assert prices[CHAT][0] > 0 and prices[CHAT][1] > 0 and prices[FREE_OF_CHARGE] == (0, 0)
    bill: dict[str, list[tuple[int, int]]] = {}

    def note(model, usage):
        used = (usage.prompt_tokens, getattr(usage, "completion_tokens", 0))
        bill.setdefault(model, []).append(used)
        # The client keeps what each call told of its cost; a float holds the twelve decimals of such a small one.
        assert round(Decimal(usage.cost), 12) == exact_cost(prices, model, *used)

    for model in (CHAT, PRO, FREE_OF_CHARGE):
        for words in ("Hello", "How do locks on a canal work? Explain it to a child.", "naïve café, 日本語, 🚦"):
            whole = client.chat.completions.create(model=model, messages=said(words))
            note(model, whole.usage)
            asked = list(
                client.chat.completions.create(
                    model=model, messages=said(words), stream=True, stream_options={"include_usage": True}
                )
            )
            note(model, asked[-1].usage)
            # The same words again, without asking for usage: billed the same.
            silent = list(client.chat.completions.create(model=model, messages=said(words), stream=True))
            assert text_of(silent) == text_of(asked)
            note(model, asked[-1].usage)
    note(EMBED, client.embeddings.create(model=EMBED, input="one").usage)
    note(EMBED, client.embeddings.create(model=EMBED, input=["two", "three, which is longer"]).usage)

    # Calls that are refused or fail cost nothing.
    for messages, error in ((said("simulate:500"), openai.InternalServerError), ([], openai.BadRequestError)):
        with pytest.raises(error):
            client.chat.completions.create(model=CHAT, messages=messages)

    costs = {model: sum((exact_cost(prices, model, *used) for used in uses), Decimal(0)) for model, uses in bill.items()}
    tokens = {model: sum(prompt + completion for prompt, completion in uses) for model, uses in bill.items()}
    usage = account.settled_usage(sum(tokens.values()))
    assert account.balance() == funds - sum(costs.values())
    assert Decimal(usage["total_cost"]) == sum(costs.values())
    assert usage["total_tokens"] == sum(tokens.values())
    assert usage["total_requests"] == sum(len(uses) for uses in bill.values())
    by_model = {item["model"]: item for item in usage["by_model"]}
    assert {model: by_model[model]["tokens"] for model in bill} == tokens
    assert {model: Decimal(by_model[model]["cost"]) for model in bill} == costs
    assert {model: by_model[model]["requests"] for model in bill} == {model: len(uses) for model, uses in bill.items()}
    assert Decimal(account.read("/llm/balance")["monthly_used"]) == sum(costs.values())


def test_list_prices_are_the_providers_and_15_percent(gateway):
    conf = Path(gateway.conf)
    catalogue = Path(yaml.safe_load(conf.read_text())["catalogue"])
    base = yaml.safe_load((catalogue if catalogue.is_absolute() else conf.parent / catalogue).read_text())
    listed = gateway.demo.list_prices()
    compared = 0
    for model in base["models"]:
        if model["id"] in listed:
            written = (model["pricing"]["prompt"], model["pricing"]["completion"])
            assert all(isinstance(price, str) for price in written), model["id"]
            assert listed[model["id"]] == tuple(Decimal(price) * Decimal("1.15") for price in written), model["id"]
            compared += 1
    assert compared == len(listed)


def test_amounts_are_json_numbers_with_exact_decimals(gateway):
    account = gateway.account(credits="0.123456789012")
    text = account.ask("/llm/balance").text
    assert decimals(text)["balance"] == Decimal("0.123456789012")
    assert '"0.123456789012"' not in text and "0.123456789012" in text

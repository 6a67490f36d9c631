"""LangChain's ChatOpenAI, which speaks through openai-python in its own way: a smoke test."""

from decimal import Decimal

from langchain_openai import ChatOpenAI


def model_of(gateway, **options) -> ChatOpenAI:
    return ChatOpenAI(
        model="simulated/chat", base_url=gateway.base_url, api_key=gateway.demo.key, max_retries=0, timeout=20, **options
    )


def test_stream_and_invoke(gateway):
    chat = model_of(gateway)
    pieces = [chunk.content for chunk in chat.stream("Say hello to the reader, please.")]
    assert len([piece for piece in pieces if piece]) > 1
    whole = chat.invoke("Say hello to the reader, please.")
    assert whole.content == "".join(pieces)
    assert whole.usage_metadata["total_tokens"] > 0
    assert whole.response_metadata["token_usage"]["cost"] > 0


def test_whole_keeps_the_cost(gateway):
    whole = model_of(gateway, include_response_headers=True).invoke("Say hello to the reader, please.")
    receipt = gateway.demo.read("/llm/generation", id=whole.response_metadata["headers"]["x-request-id"])["data"]
    assert Decimal(str(whole.response_metadata["token_usage"]["cost"])) == receipt["total_cost"] > 0


def test_stream_with_usage(gateway):
    """Of a stream's usage LangChain keeps the tokens, and drops whatever it has no name for: the cost too. The id that it keeps with the
    headers leads to the receipt, which has it."""
    heard = None
    for chunk in model_of(gateway, stream_usage=True, include_response_headers=True).stream("Say hello to the reader, please."):
        heard = chunk if heard is None else heard + chunk
    assert heard.content and heard.usage_metadata["total_tokens"] > 0
    assert "cost" not in heard.usage_metadata and "token_usage" not in heard.response_metadata, "it keeps the cost now: hold it to the receipt"
    receipt = gateway.demo.read("/llm/generation", id=heard.response_metadata["headers"]["x-request-id"])["data"]
    tokens = (heard.usage_metadata["input_tokens"], heard.usage_metadata["output_tokens"])
    assert tokens == (receipt["tokens_prompt"], receipt["tokens_completion"])
    prompt, completion = gateway.demo.list_prices()["simulated/chat"]
    assert receipt["total_cost"] == tokens[0] * prompt + tokens[1] * completion

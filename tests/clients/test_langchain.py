"""LangChain's ChatOpenAI, which speaks through openai-python in its own way: a smoke test."""

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


def test_stream_with_usage(gateway):
    heard = None
    for chunk in model_of(gateway, stream_usage=True).stream("Say hello to the reader, please."):
        heard = chunk if heard is None else heard + chunk
    assert heard.content and heard.usage_metadata["total_tokens"] > 0

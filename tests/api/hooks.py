"""What Schemathesis cannot know: the models that there are, how integers are written, and parameters that exclude each other."""

from datetime import UTC, date, datetime

import schemathesis

PERIODS = ("today", "7d", "30d", "all")
INTEGERS = ("n", "max_tokens", "max_completion_tokens", "input")


@schemathesis.hook
def map_body(context, body):
    """Names a real model where the body names one at all: a name that is made up gets 404 before anything else is looked at."""
    if not isinstance(body, dict):
        return body
    # A key of the request that differs from a known one in case alone is refused, which no schema says.
    body = {name: value for name, value in body.items() if name == name.casefold()}
    body = body | {name: in_digits(body[name]) for name in INTEGERS if name in body}
    if context.operation is not None and isinstance(body.get("model"), str) and body["model"]:
        return body | {"model": "test/embed" if "embeddings" in context.operation.path else "test/chat"}
    return body


def in_digits(value):
    """JSON Schema calls 5.0 an integer. The gateway, like the providers behind it, wants 5."""
    if isinstance(value, list):
        return [in_digits(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def before_call(context, case, kwargs):
    """Days are named by a period, or by the first and the last, which are in their order: no schema of single parameters says that. What is
    wrong in itself stays, to be refused."""
    query = case.query
    if not isinstance(query, dict) or not all(is_day(query[name]) for name in ("from", "to") if name in query):
        return
    if query.get("period") in PERIODS:
        query.pop("from", None)
        query.pop("to", None)
    if "from" in query:
        query["from"] = min(query["from"], query.get("to", datetime.now(UTC).date().isoformat()))


def is_day(text):
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False

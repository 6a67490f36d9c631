"""What Schemathesis cannot know of the operator's API: names that there are, days in their order, amounts that add up, fields that belong
together. Only what is right in itself is changed: what is wrong stays, to be refused."""

import os
import re
from datetime import UTC, date, datetime, timedelta

import schemathesis

PERIODS = ("today", "7d", "30d", "all")
INTEGERS = ("rpm", "tpm", "concurrency")
TEXTS = {"reference": 200, "note": 500, "label": 100, "name": 64}
RESETS = ("daily", "weekly", "monthly", "none")
AMOUNT = re.compile(r"-?[0-9]{1,7}([.][0-9]{1,12})?")


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Names an account that there is, where it names one at all."""
    if isinstance(path_parameters, dict) and isinstance(path_parameters.get("name"), str) and path_parameters["name"].isalnum():
        return path_parameters | {"name": "acme"}
    return path_parameters


@schemathesis.hook
def before_call(context, case, kwargs):
    # The operator who asks is not revoked.
    if isinstance(case.path_parameters, dict) and case.path_parameters.get("id") == os.environ["TOLLGATE_API_OPERATOR"]:
        case.path_parameters["id"] = "op_0000000000000000"
    if isinstance(case.query, dict):
        mend_query(case.operation.path, case.query)
    if isinstance(case.body, dict):
        mend_body(case.operation.path, case.body)


def mend_query(path, query):
    if path.endswith("/credits"):
        # A page begins at an entry that there is.
        query.pop("before", None)
    if not all(is_day(query[name]) for name in ("from", "to") if name in query):
        return
    if query.get("period") in PERIODS:
        query.pop("from", None)
        query.pop("to", None)
    if "from" not in query and "to" not in query:
        return
    today = datetime.now(UTC).date()
    last = date.fromisoformat(query["to"]) if "to" in query else today
    first = date.fromisoformat(query["from"]) if "from" in query else last
    if path.endswith("/statement"):
        # Not too many days, of which none is to come.
        last = min(last, today)
        first = max(min(first, last), last - timedelta(days=300))
    query["from"], query["to"] = min(first, last).isoformat(), last.isoformat()


def mend_body(path, body):
    for name in INTEGERS:
        # JSON Schema calls 5.0 an integer. The gateway wants 5.
        if isinstance(body.get(name), float) and body[name].is_integer():
            body[name] = int(body[name])
    for name, most in TEXTS.items():
        # Bounds are in bytes, and control characters are refused.
        if isinstance(body.get(name), str) and 0 < len(body[name]) <= most:
            body[name] = plain(body[name])
            if name == "reference":
                # No white space at either end, which no length says.
                body[name] = body[name].strip() or "x"
    if path.endswith("/accounts") and body.get("name") in (".", ".."):
        # No path has such a name.
        body["name"] = "x"
    if isinstance(body.get("metadata"), dict):
        for name, value in body["metadata"].items():
            if isinstance(value, str) and len(value) <= 512:
                body["metadata"][name] = plain(value)
    if path.endswith("/credits") and isinstance(body.get("amount"), str) and AMOUNT.fullmatch(body["amount"]):
        # Thousands of them stay in the range of a balance, and none takes what is not there.
        body["amount"] = "0." + (body["amount"].partition(".")[2].rstrip("0") or "5")
        if body.get("kind") == "refund":
            # A refund takes credit.
            body["kind"] = "correction"
    for name in ("monthly_quota", "low_balance", "limit", "end_user_limit"):
        # An amount has a range, which no pattern says.
        if isinstance(body.get(name), str) and AMOUNT.fullmatch(body[name]) and len(body[name].partition(".")[0]) == 7:
            body[name] = body[name][1:]
    for limit in ("limit", "end_user_limit"):
        # A limit's period goes with a limit.
        if body.get(f"{limit}_reset") in RESETS and body.get(limit) is None:
            body[limit] = "5"
    addresses = body.get("addresses")
    if isinstance(addresses, list) and all(isinstance(address, str) and address for address in addresses):
        body["addresses"] = ["10.0.0.0/8"] * len(addresses)
    if body.get("status") == "closed":
        # Nothing follows on closed.
        body["status"] = "suspended"


def plain(text):
    return "".join(character if " " <= character <= "~" else "x" for character in text)


def is_day(text):
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False

"""Lengths of time at both sides of each bound: the pattern that describes them takes what the gateway takes, and nothing else."""

import json
import re
import sys
import urllib.error
import urllib.request

# Units, and how many of each a day has.
UNITS = {"d": 1, "h": 24, "m": 1_440, "s": 86_400}
# The schema of each field, and the days of the longest length that it takes.
FIELDS = {"expires_in": ("Lifetime", 36_500), "overlap": ("Lasting", 366)}
MALFORMED = ["", "00", "1", "d", "1w", "+1d", "-1d", "1.5h", "1 d", " 1d", "1dd", "1D"]
ANSWER_SECONDS_MAX = 20


def texts(days: int) -> list[str]:
    """For each unit the least and the longest, with what is next to them, and numbers that differ from the longest in one digit's carry."""
    found = ["0", *MALFORMED]
    for unit, each in UNITS.items():
        most = days * each
        numbers = {0, 1, most - 1, most, most + 1, 10 * most}
        for place in range(1, len(str(most))):
            step = 10**place
            floor = most // step * step
            numbers |= {floor - 1, floor, floor + step}
        found += [f"{number}{unit}" for number in sorted(numbers)]
        found += [f"00{number}{unit}" for number in (0, 1, most, most + 1)]
    return found


def check(base_url: str, token: str, account: str):
    """Ends the process with what differs, if anything does. Each length that is taken makes a key of the account."""

    def asked(method: str, path: str, body=None) -> tuple[int, dict]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{base_url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, {}

    def new_key(**fields) -> tuple[int, dict]:
        return asked("POST", f"/accounts/{account}/keys", fields)

    def is_taken(field: str, text: str) -> bool:
        if field == "expires_in":
            status = new_key(expires_in=text)[0]
        else:
            status = asked("POST", f"/keys/{new_key()[1]['id']}/rotate", {"overlap": text})[0]
        if status not in (201, 400):
            sys.exit(f"{field} {text!r} is answered with {status}")
        return status == 201

    schemas = asked("GET", "/openapi.json")[1]["components"]["schemas"]
    wrong = []
    for field, (schema, days) in FIELDS.items():
        pattern = re.compile(schemas[schema]["pattern"])
        for text in texts(days):
            taken = is_taken(field, text)
            if bool(pattern.fullmatch(text)) != taken:
                wrong.append(f"{field} {text!r} is {'taken' if taken else 'refused'}, and its pattern says otherwise")
    if wrong:
        sys.exit("\n".join(wrong))

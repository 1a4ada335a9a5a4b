"""Reading of a request's JSON, field by field: each has a type and a range, and an error names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class ApiError(Exception):
    """An answer other than 200, with its reason in the form that OpenAI's clients read."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """Return the body as an object. Raises ApiError that says it should have ``what``."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON ({error}); send an object with {what}") from None
    if not isinstance(asked, dict):
        raise ApiError(400, f"the body is {kind_of(asked)}, expected an object with {what}")
    return asked


def take(asked: dict[str, Any], field: str, kinds: tuple[type, ...], expected: str, default: Any) -> Any:
    """Remove a field from the object and return its value; null is the default, as in OpenAI's API."""
    value = asked.pop(field, None)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise wrong(field, f"{field} is {short(value)}, expected {expected}")
    return value


def take_bool(asked: dict[str, Any], field: str, default: bool = False) -> bool:
    return bool(take(asked, field, (bool,), "true or false", default))


def take_number(
    asked: dict[str, Any], field: str, default: Any, kind: type, low: float, high: float | None = None
) -> Any:
    """Remove a field and return it as a whole or another number within its range."""
    expected = "a whole number" if kind is int else "a number"
    expected += f" from {low} up" if high is None else f" from {low} to {high}"
    value = take(asked, field, (int,) if kind is int else (int, float), expected, default)
    if value is not default and not (low <= value and (high is None or value <= high)):
        raise wrong(field, f"{field} is {short(value)}, expected {expected}")
    return value if value is None else kind(value)


def refuse_rest(asked: dict[str, Any], what: str) -> None:
    """Raise ApiError for a field that nothing has taken."""
    if asked:
        unknown = min(asked)
        raise wrong(unknown, f"there is no field {unknown!r} in a request for {what}; leave it out")


def wrong(field: str, message: str) -> ApiError:
    return ApiError(400, message, param=field)


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind_of(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "an empty list" if not value else "a list"
    return short(value)

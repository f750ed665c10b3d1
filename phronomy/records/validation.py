"""Whether something is a checkpoint; if it is not, all that is wrong with it, and where. And a new id for one.

The loader is the one authority: what it reads has no problem, whatever is said here. Here its refusal is taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from phronomy.errors import CheckpointError
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonError, canonical, parse
from phronomy.records.checkpoint import DERIVED, VERSION, Checkpoint, Fields, _check_version, _sorted, decode
from phronomy.records.decisions import PendingApproval
from phronomy.records.record import Record, reader_of

MOST: Final = 100
"""Problems that are listed; of any further ones, only how many there are."""

_Place: TypeAlias = tuple[int | str, ...]

_UNKNOWN: Final = "is an unknown field"
_MISSING: Final = "is missing"


def create_checkpoint_id() -> str:
    """Make a new checkpoint id, in the form that runs use: `ckpt_` and 96 random bits in hexadecimal."""
    return new_id("ckpt")


class Problem(Record):
    """A problem of a checkpoint. `reason` never quotes a value, so you can log it.

    `path` is the place of the problem, such as `messages.3.tool_calls.0.id`; it is empty for the whole checkpoint.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'checkpoint'}: {self.reason}"


def validate_checkpoint(value: object) -> list[Problem]:
    """List the problems of a checkpoint. The list is empty exactly if `Checkpoint.model_validate_json` can read it.

    `value` is a `Checkpoint`, text, bytes, or a dict that was read from such a text or comes from `model_dump`. The
    function raises nothing: any other value is a problem too. It lists at most 100 problems, and then how many more
    there are.
    """
    found = _Found()
    text = _text_of(value, found)
    if text is not None:
        try:
            Checkpoint.model_validate_json(text)
        except CheckpointError:
            _explain(text, found)
            if not found.reasons:
                found.add((), "is refused by the loader")
    return found.problems()


class _Found:
    """What was found so far: one reason for a place, the first."""

    def __init__(self) -> None:
        self.reasons: dict[_Place, str] = {}

    def add(self, place: _Place, reason: str) -> None:
        self.reasons.setdefault(place, reason)

    def problems(self) -> list[Problem]:
        listed = [Problem(path=_path(place), reason=self.reasons[place]) for place in list(self.reasons)[:MOST]]
        if (more := len(self.reasons) - MOST) > 0:
            listed.append(Problem(path="", reason=f"has {more} more problems"))
        return listed


def _path(place: _Place) -> str:
    return ".".join(map(_shown, place))


def _shown(key: int | str) -> str:
    """A key as it can stand in a log, whoever chose it."""
    if isinstance(key, int):
        return str(key)
    short = key[:40] if key.isprintable() else key[:40].encode("unicode_escape").decode()
    return (short or '""') + ("..." if len(key) > 40 else "")


# The text


def _text_of(value: object, found: _Found) -> str | bytes | bytearray | None:
    """The text that the loader is to read, None if there is none."""
    if isinstance(value, str | bytes | bytearray):
        return value
    if not isinstance(value, Checkpoint | dict):
        found.add((), f"is text, bytes, a dict or a Checkpoint, not {type(value).__name__}")
        return None
    try:
        return value.model_dump_json(warnings=False) if isinstance(value, Checkpoint) else to_json(value)
    except Exception:  # it was built without being judged, of whatever; what is raised may quote it
        found.add((), "cannot be written as JSON")
        return None


def _explain(text: str | bytes | bytearray, found: _Found) -> None:
    try:
        data = parse(text)
    except JsonError as error:
        found.add((), _of_json(error))
        return
    _check(data, (), found)


def _of_json(error: JsonError) -> str:
    """The reason without the key or the number that it may quote."""
    text = str(error)
    if "stands twice" in text:
        return "holds JSON in which a key stands twice in one object"
    if "is out of range" in text:
        return "holds JSON with a number that is out of range"
    return text if text.startswith(("not ", "nested ", "JSON text ", "the JSON text ")) else "holds what is not JSON"


# The fields


def _check(data: Any, place: _Place, found: _Found) -> None:
    """Note what is wrong with the value of a dump, of the whole or of a run nested in it."""
    if not isinstance(data, dict):
        found.add(place, "is no checkpoint: a JSON object is needed")
        return
    before = len(found.reasons)
    try:
        _check_version(data)
    except CheckpointError:
        version = data.get("version")
        if type(version) is int:
            found.add((*place, "version"), f"is newer than {VERSION}, up to which this release reads: upgrade phronomy")
            return
        found.add((*place, "version"), "is no whole number" if "version" in data else _MISSING)
    for key in DERIVED:
        if key not in data:
            found.add((*place, key), _MISSING)
    if "pending" in data:
        _read(reader_of(tuple[PendingApproval, ...]), data["pending"], (*place, "pending"), found)
    record = _read(reader_of(Fields), {key: value for key, value in data.items() if key not in DERIVED}, place, found)
    if record is not None and len(found.reasons) == before:
        _compare_dump(data, Checkpoint.model_construct(**record.__dict__).model_dump(mode="json"), place, found)


def _read(adapter: TypeAdapter[Any], data: Any, place: _Place, found: _Found) -> Any:
    """What the loader makes of the data, None if it refuses it: then it is noted why."""
    try:
        return adapter.validate_json(canonical(data))
    except JsonError as error:
        found.add(place, _of_json(error))
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            _note(item, data, place, found)
    return None


def _note(item: ErrorDetails, data: Any, place: _Place, found: _Found) -> None:
    where, error = item["loc"], item.get("ctx", {}).get("error")
    if where[:1] == ("nested",) and len(where) == 2 and isinstance(error, ValueError):
        before = len(found.reasons)  # the loader has refused a nested run, with what is wrong in it as one text
        _check(data["nested"][where[1]], (*place, *where), found)
        if len(found.reasons) > before:
            return
    if where[:1] == ("journal",) and len(where) > 2:
        where = (*where[:2], *where[3:])  # the third names the member of the union, which is no place
    if isinstance(error, ValueError):
        reason = _of_json(error) if isinstance(error, JsonError) else str(error)
    else:
        reason = _REASONS.get(item["type"]) or item["msg"].replace("Input should", "should", 1)
    found.add((*place, *where), reason)


_REASONS: Final[Mapping[str, str]] = {
    "extra_forbidden": _UNKNOWN,
    "missing": _MISSING,
    "union_tag_invalid": "is of an unknown type",  # pydantic's own text quotes it
    "union_tag_not_found": "has no type",
}


def _compare_dump(data: dict[str, Any], again: dict[str, Any], place: _Place, found: _Found) -> None:
    """Note where a dump differs from that of the record which was read from it."""
    if data.get("status") == "suspended" and not again["pending"]:
        found.add((*place, "status"), "is suspended, and nothing is pending")
    for key, value in again.items():
        reason = "does not agree with the rest: the checkpoint was edited or damaged"
        if key in data:
            _compare(data[key], value, (*place, key), found, reason if key in DERIVED else "is not as a dump writes it")
        else:
            found.add((*place, key), _MISSING)


def _compare(given: Any, again: Any, place: _Place, found: _Found, reason: str) -> None:
    if isinstance(given, dict) and isinstance(again, dict):
        for key in {**again, **given}:
            if key not in given or key not in again:
                found.add((*place, key), _MISSING if key in again else _UNKNOWN)
            else:
                _compare(given[key], again[key], (*place, key), found, reason)
    elif isinstance(given, list) and isinstance(again, list) and len(given) == len(again):
        for index, (one, other) in enumerate(zip(given, again, strict=True)):
            _compare(one, other, (*place, index), found, reason)
    elif _sorted(given) != _sorted(again):
        found.add(place, reason)


def checked(given: object) -> Checkpoint:
    """The checkpoint, validated anew however it was built. Raises `CheckpointError`."""
    if not isinstance(given, Checkpoint):
        raise CheckpointError(
            f"a Checkpoint is needed, not {type(given).__name__}: a result has one as `result.checkpoint`, and"
            " Checkpoint.model_validate_json reads a text"
        )
    try:
        text = given.model_dump_json(warnings="error")
    except CheckpointError:  # it is too long
        raise
    except Exception:  # a record that was put together by force; what is in it does not belong in an error
        raise CheckpointError("the checkpoint holds values that its fields do not allow") from None
    return decode(text)

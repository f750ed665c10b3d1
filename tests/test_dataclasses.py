"""The faster `dataclass` makes what the standard library's makes."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, field
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from phronomy.foundation.dataclasses import dataclass

MAKERS = {"ours": dataclass, "the standard library's": dataclasses.dataclass}


def point(maker: Any, **options: Any) -> Any:
    """A class with a field of each kind."""

    @maker(frozen=True, **options)
    class Point:
        x: int
        y: int = 2
        secret: str = field(default="s", repr=False)
        noted: str = field(default="n", compare=False)
        tags: list[str] = field(default_factory=list, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", abs(self.x))

    return Point


OPTIONS: list[dict[str, bool]] = [{}, {"slots": True}, {"kw_only": True}, {"slots": True, "kw_only": True, "eq": False}]
each_options = pytest.mark.parametrize("options", OPTIONS, ids=str)


@each_options
def test_it_shows_compares_and_hashes_as_the_standard_one_does(options: dict[str, bool]) -> None:
    said = []
    for maker in MAKERS.values():
        made = point(maker, **options)
        one, same, other = made(x=-1), made(x=1, noted="else"), made(x=1, y=3)
        said.append(
            (
                repr(one),
                one == same,
                one == other,
                one == object(),
                one.tags is same.tags,
                not options.get("eq", True) or hash(one) == hash(same) == hash((1, 2, "s")),
                str(inspect.signature(made)),
                made.__match_args__,
                made.__init__.__qualname__.rpartition(".")[2],
                [(each.name, each.default, each.repr, each.kw_only) for each in dataclasses.fields(made)],
                dataclasses.replace(one, y=5) == made(x=1, y=5),
                dataclasses.asdict(one),
                hasattr(one, "__dict__"),
            )
        )
    assert said[0] == said[1]


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: str = "b"


@dataclass(frozen=True)
class Plain:
    a: int
    _: KW_ONLY
    b: str = "b"


@dataclass(frozen=True)
class Nothing:
    pass


@pytest.mark.parametrize("made", [Slotted(1), Plain(1), Nothing()], ids=repr)
def test_it_is_copied_pickled_and_hashed(made: Any) -> None:
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # ours
        assert again == made
        assert hash(again) == hash(made)
    assert len({made, copy.copy(made)}) == 1


@pytest.mark.parametrize("made", [Slotted(1), Plain(1)], ids=repr)
def test_no_field_is_assigned_or_deleted(made: Any) -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        made.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del made.a
    with pytest.raises(AttributeError, match="'c'"):
        made.c = 2
    assert made.a == 1


def test_a_class_that_inherits_is_frozen_in_what_it_inherits() -> None:
    class Own(Plain):
        pass

    @dataclasses.dataclass(frozen=True)
    class More(Plain):
        c: int = 3

    own: Any = Own(1)
    own.c = 3
    with pytest.raises(FrozenInstanceError, match="'a'"):
        own.a = 2
    more: Any = More(1, 4)
    assert repr(more).endswith("More(a=1, b='b', c=4)")
    assert more == More(1, 4)
    assert more != More(1, 5)
    with pytest.raises(FrozenInstanceError, match="'c'"):
        more.c = 2


def test_arguments_that_are_missing_or_unknown_are_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Slotted()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        Slotted(1, c=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        Plain(1, "b")  # type: ignore[misc]


def test_what_the_class_says_itself_stays() -> None:
    @dataclass(frozen=True, slots=True)
    class Quiet:  # noqa: PLW1641  # it is given one
        a: int

        def __repr__(self) -> str:
            return "Quiet(...)"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Quiet)

    assert repr(Quiet(1)) == "Quiet(...)"
    assert Quiet(1) == Quiet(2)
    assert hash(Quiet(1)) == hash((1,))  # as in the standard library


def test_one_that_contains_itself_can_be_shown() -> None:
    made = Slotted(1)
    object.__setattr__(made, "b", made)
    assert repr(made) == "Slotted(a=1, b=...)"


def test_pydantic_knows_its_fields() -> None:
    assert TypeAdapter(Plain).validate_python({"a": "7", "b": "c"}) == Plain(7, b="c")
    with pytest.raises(ValidationError, match="valid integer"):
        TypeAdapter(Plain).validate_python({"a": "x"})


def test_its_annotations_are_resolved_where_the_class_stands() -> None:
    assert get_type_hints(Slotted.__init__) == {"a": int, "b": str, "return": type(None)}
    assert get_type_hints(Kept.__init__)["of"] is Slotted


@dataclass(frozen=True)
class Kept:
    of: "Slotted"


def test_its_init_is_compiled_when_it_is_first_asked_for() -> None:
    made = point(dataclass)

    class Own(made):  # type: ignore[misc]
        pass

    assert not inspect.isfunction(vars(made)["__init__"])
    own: Any = Own(-1, y=3)  # by a class that inherits it
    assert (own.x, own.y, own.tags) == (1, 3, [])
    assert inspect.isfunction(vars(made)["__init__"])
    assert "__init__" not in vars(Own)
    assert made(1) == made(-1)

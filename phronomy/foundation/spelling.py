"""Names that are near an option: what was meant is said, and a misspelt gate in a class is no gate that is open."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, ForwardRef, Self, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from phronomy.errors import ConfigurationError
from phronomy.foundation import foreign_words

_GATES: Final = {"approval", "breakpoint", "guardrail"}
"""Words of which each says by itself that something is to be held back."""

GATES_OF: Final = {
    "requires_approval": "a tool, a node, a step or a handoff",
    "approval_policy": "an agent or a graph",
    "on_approval_required": "an agent or a graph",
    "breakpoints": "an agent or a graph",
    "input_guardrails": "an agent, a pattern or a team",
    "output_guardrails": "an agent, a pattern or a team",
    "tool_guardrails": "an agent, a pattern or a team",
}
"""The options that hold something back, each with what it is an option of."""

_ASKING: Final = {"require", "need"}
_ASKED: Final = {"approval", "authorization", "confirmation", "consent", "human", "permission", "review"}
"""Words of which one of each makes a name that means `requires_approval`, in the words of others."""

_GATED: Final = {*_ASKED, "ask", "confirm", "gate", "gated", "hitl"}
"""Words that say by themselves that a human is asked, if the value is a text (`confirm = "always"`)."""

_SMALL: Final = {"before", "call", "i", "in", "loop", "on", "the", "tool"}
"""Words that may stand beside those, in a name that says nothing else. `_words` gives `is` as `i`."""

_ANYBODYS: Final = {"Any", "Callable", "Iterable", "Literal", "Mapping", "None", "Sequence"}
"""Names in the types of options that say nothing of what an option is for."""


def _has_gate(value: object, but: type | tuple[()] = ()) -> bool:
    """True if the value is a gate, or a collection that has one: an instance of a class with `_holds_back`, or the class.

    `but` is a class of gates that are not meant: a guardrail may be made of others.
    """
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:  # a list may be in itself
            continue
        seen.add(id(each))
        if isinstance(each, dict | MappingProxyType):  # any other mapping may be a database
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            left += each
        elif isinstance(each, partial):
            left.append(each.func)
        else:
            kind = each if isinstance(each, type) and _is_ours(each) else type(each)
            # `Reject` is a record, which knows nothing of this module.
            if getattr(kind, "_holds_back", False) is True and not issubclass(kind, but):
                return True
    return False


def near(name: str, options: Iterable[str], alike: float = 0.8, *, by_gate: bool = True) -> str | None:
    """The option that a name may have been meant for; None if it is like none.

    It is like an option if other libraries call that so (`foreign_words`); if it has the same words, whatever their case, their number
    and what joins them; if the two are alike by this part, as `difflib` counts; and, `by_gate`, if a word of both is that of a gate
    (`needs_approval`), or if it is `policy`.
    """
    return _near(name, tuple(options), alike, by_gate)


@lru_cache(maxsize=1024)
def _near(name: str, options: tuple[str, ...], alike: float, by_gate: bool) -> str | None:
    import difflib  # noqa: PLC0415  # where nothing is misspelt, nothing is compared

    if (same := next((each for each in foreign_words.SYNONYMS.get(name, ()) if each in options), None)) is not None:
        return same
    words, known = _words(name), {option: _words(option) for option in options}
    for option, its in known.items():
        if its == words:
            return option
    small = {option.lower(): option for option in known}
    found = difflib.get_close_matches(name.lower(), small, 1, alike)
    if found or not by_gate:
        return small[found[0]] if found else None
    shared = [option for option, its in known.items() if _GATES & {*words} & {*its} or words == its[-1:] == ["policy"]]
    return next(iter(difflib.get_close_matches(name.lower(), shared, 1, 0.0)), None)


def _words(name: str) -> list[str]:
    parts = re.split(r"[_-]|(?<=[a-z0-9])(?=[A-Z])", name)
    return [part.lower().removesuffix("s") for part in parts if part]


def as_function(name: str) -> str:
    """The name of a class as one of a function: `MaxLength` as `max_length`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def told(unknown: Iterable[str], options: Iterable[str]) -> str:
    """The names, each with the option that it may have been meant for, or with what to write in place of it."""
    known = list(options)
    meant = {name: _meant(name, known, 0.7) for name in sorted(map(str, unknown))}
    return ", ".join(name if what is None else f"{name} ({what})" for name, what in meant.items())


def _meant(name: str, options: Iterable[str], alike: float = 0.8) -> str | None:
    """The end of an error about a name that is no option: what was meant; None if nobody can tell."""
    known = tuple(options)
    if (option := near(name, known, alike, by_gate=False)) is None:
        if (words := foreign_words.OPTIONS.get(name)) is not None:
            return words
        option = near(name, known, alike)
    return None if option is None else f"did you mean {option}?"


def no_attribute(owner: object, name: str) -> AttributeError:
    """The error for an attribute that an object has not, with what to write if people of other libraries look for it."""
    words = None if name.startswith("_") else foreign_words.attribute(type(owner), name)
    said = f"{type(owner).__name__!r} object has no attribute {name!r}"
    # With an object of its own, Python would add a guess by the letters: `resume` for `run`.
    return AttributeError(
        said if words is None else f"{said}: {words}", name=name, obj=owner if words is None else None
    )


def check_options(kind: str, given: Iterable[str], options: Iterable[str], refuse: Callable[[str], Exception]) -> None:
    """Refuse options that one of this kind has not, each with the one that was meant."""
    if unknown := {*given} - {*options}:
        raise refuse(f"{kind} has no option {told(unknown, options)}; it has {', '.join(options)}")


def check_by_name(
    kind: str, given: Iterable[object], options: Iterable[str], refuse: Callable[[str], Exception]
) -> None:
    """Refuse what is given by its place, where each option is given by its name."""
    if any(True for _ in given):
        shown = ", ".join(f"{name}=..." for name in list(options)[:3])
        raise refuse(f"{kind} takes its options by name: write {kind}({shown})")


def _means_approval(name: str) -> bool:
    words = set(_words(name))
    return bool(words & _ASKING and words & _ASKED)


def misplaced(name: str) -> str | None:
    """The end of an error about the name of a gate, well or badly spelt, where there is no such gate; None for any other name."""
    gate = near(name, GATES_OF, by_gate=False)
    if gate is None and _means_approval(name):
        gate = "requires_approval"
    if gate is None:
        return None
    meant = "that" if gate == name else f"did you mean {gate}? It"
    return f"{meant} is an option of {GATES_OF[gate]}."


def check_function(name: str, function: Callable[..., object], refuse: Callable[[str], Exception], how: str) -> None:
    """Refuse a function that has a gate as an attribute, and is to become a tool or a node: nobody would look at it."""
    own: dict[str, object] = {}
    while isinstance(function, partial):
        own |= function.__dict__
        function = function.func
    kind: type = type(function)
    for owner in kind.__mro__:
        if not _is_ours(owner) and owner.__module__ != "builtins":
            own = {**vars(owner), **own}
    for each, value in {**own, **getattr(function, "__dict__", {})}.items():
        if (why := misplaced(each) or _of_value(each, value)) is not None:
            raise refuse(f"{name} has the attribute {each}, which would be ignored: {why} Write {how}")


def _of_value(name: str, value: object, but: type | tuple[()] = ()) -> str | None:
    """The end of an error about a gate under a name of the user's own; None for any other value."""
    return "it has a gate as its value, and is none." if name[:1] != "_" and _has_gate(value, but) else None


class Options:
    """The options of a class that users derive from, or set attributes on: what would be ignored there is refused.

    `options` has the type of each; `typed` is the TypedDict that they are written in: their types tell what is one. `elsewhere` are
    options that are heard in another place alone, each with which. In a class of a `closed` base, an attribute of its own that has
    the form of a gate (a bool, names) is refused: it may be a gate in the words of others.
    """

    def __init__(
        self,
        base: type,
        options: Mapping[str, object],
        refuse: Callable[[str], Exception],
        *,
        typed: type | None = None,
        elsewhere: Mapping[str, str] | None = None,
        closed: bool = False,
    ) -> None:
        self._base = base
        self._closed = closed
        self._options = tuple(options)
        self._refuse = refuse
        self._elsewhere = {} if elsewhere is None else elsewhere
        public = {name: value for owner in reversed(base.__mro__) for name, value in _public(owner)}
        self.known: KeysView[str] = public.keys()
        # What is worked out from the options, and is none: with another value there the options would say nothing.
        self._made = {name for name, value in public.items() if name not in options and _is_data(value)}
        self._types = set() if typed is None else _types(options)
        module = {} if typed is None else vars(sys.modules[typed.__module__])
        self._aliases = {
            name: module[name] for name in self._types & module.keys() if not isinstance(module[name], type)
        }
        self._seen: WeakKeyDictionary[type, list[str]] = WeakKeyDictionary()

    def check(self, made: type) -> None:
        """Refuse a class that has what may be a misspelt option, or one where it is not heard: nobody would know.

        What is annotated as a `ClassVar`, or begins with an underscore, is the class's own. Looked at again only if there is
        something new in the class, or in one that it is made of.
        """
        names = list(chain.from_iterable(owner.__dict__ for owner in made.__mro__))
        if self._seen.get(made) == names:
            return
        behind = False
        for owner in made.__mro__:
            behind = behind or owner is self._base
            if owner in self._base.__mro__ or not _is_ours(owner):
                for name, annotation in _attributes(owner):
                    self._check_name(made, owner, name, annotation, behind=behind)
                if self._closed:
                    self._check_private(owner)
                    self._check_inner(owner)
        self._seen[made] = names

    def _check_name(self, made: type, owner: type, name: str, annotation: object, *, behind: bool) -> None:
        its_base = owner in self._base.__mro__
        if name in self.known:
            if its_base:
                return
            if name not in owner.__dict__:
                self._check_annotated(owner, name, annotation)
                return
            if behind:
                winner = next(each for each in made.__mro__ if name in each.__dict__)
                if name in self._options and (winner in self._base.__mro__ or _is_ours(winner)):
                    raise self._refuse(
                        f"class {made.__name__}: {name} of {owner.__name__} would be ignored, since {winner.__name__} has one and comes"
                        f" first: put {owner.__name__} in front of it"
                    )
            elif name in self._made:
                raise self._refuse(
                    f"class {owner.__name__}: {name} is no option of {self._base.__name__}, which makes it of its options: write those"
                )
            if name not in self._elsewhere:
                return
        if "ClassVar" in _words_of(annotation):
            return
        why = self.why(name)
        if why is None and self._has_type_of_option(annotation):
            why = "it has the type of an option, and is none."
        if why is None:
            why = _of_value(name, owner.__dict__.get(name), self._base)
        if why is None and self._closed and _has_form_of_gate(owner, name, annotation):
            why = "it has the form of a gate, and is none."
        if why is not None:
            raise self._refuse(
                f"class {owner.__name__}: {name} {self._what(name)}: {why} "
                f"If it is the class's own, call it _{name}, or annotate it as a ClassVar"
            )

    def _check_annotated(self, owner: type, name: str, annotation: object) -> None:
        """Refuse an option that is annotated and has no value, as where a colon stands for an equals sign."""
        if name in self._options and "ClassVar" not in _words_of(annotation):
            raise self._refuse(
                f"class {owner.__name__}: {name} is only annotated, and has no value, so it would be ignored: write {name} = ..., or"
                " take the annotation out"
            )

    def _check_private(self, owner: type) -> None:
        """Refuse a gate under a name with an underscore: nobody would look at it."""
        mangled = f"_{owner.__name__.lstrip('_')}__"
        for name in (*owner.__dict__, *inspect.get_annotations(owner)):
            meant = name.removeprefix(mangled).strip("_")
            if name.startswith("_") and meant in GATES_OF:
                raise self._refuse(
                    f"class {owner.__name__}: {name} would be ignored: did you mean {meant}? For something of the class's"
                    " own, take another name"
                )

    def _check_inner(self, owner: type) -> None:
        """Refuse a gate in a class within the class, such as `class Config`. A tool or an agent there has options of its own."""
        for inner in owner.__dict__.values():
            within = isinstance(inner, type) and not any(map(_is_ours, inner.__mro__))
            for name, value in inner.__dict__.items() if within else ():
                if (why := misplaced(name) or _of_value(name, value)) is not None:
                    raise self._refuse(
                        f"class {owner.__name__}: {name} in its class {inner.__name__} would be ignored: {why} Write it in"
                        f" {owner.__name__} itself"
                    )

    def check_attribute(self, name: str, owner: object, value: object = None) -> None:
        """Refuse to set what an object does not have, and what may be a misspelt option of it."""
        kind = type(owner)
        if name.startswith("_") or name in self.known or hasattr(kind, name):
            return
        if name in getattr(kind, "__annotations__", ()):
            return
        if (why := self.why(name) or _of_value(name, value, self._base)) is not None:
            if name in self._options:
                raise self._refuse(f"{kind.__name__}: {name} {self._what(name)}: {why}")
            raise self._refuse(
                f"{kind.__name__} has no option {name}, and it would be ignored: {why} If it is the object's own, call it _{name}"
            )

    def _what(self, name: str) -> str:
        return (
            "would be ignored here"
            if name in self._options
            else f"is no option of {self._base.__name__}, and would be ignored"
        )

    def why(self, name: str) -> str | None:
        """Why the name would be ignored; None if it is the user's own."""
        if name in self._elsewhere:
            return self._elsewhere[name]
        if name in self._options:
            return None
        meant = None if name in GATES_OF or near(name, self._options) is None else _meant(name, self._options)
        return misplaced(name) if meant is None else meant

    def _has_type_of_option(self, annotation: object) -> bool:
        if self._types & set(_words_of(annotation)):
            return True
        wanted = [_members(alias) for alias in self._aliases.values()] if not isinstance(annotation, str) else []
        parts = [_members(part) for part in _parts(annotation)] if wanted else []
        return any(all(each in part for each in alias) for alias in wanted for part in parts)


def where_made(kind: str, options: Iterable[str]) -> dict[str, str]:
    """The sentences for errors about options that have an effect only where one of this kind is made, by name."""
    return {name: f"give it where one is made, as in {kind}(..., {name}=...)." for name in options}


class Given:
    """A base of classes that take options only as arguments. A misspelt option, or one in another place, is refused.

    The options are the parameters of `__init__`. `elsewhere` names options of the objects that the class makes, each
    with the place where it belongs. Raises `ConfigurationError`.
    """

    __slots__ = ()

    _given: ClassVar[Options]

    _takes: ClassVar[tuple[str, ...]]
    """The names of the parameters. Empty if other code checks them later."""

    def __init_subclass__(cls, elsewhere: Mapping[str, str] | None = None, **options: object) -> None:
        super().__init_subclass__(**options)
        if not _is_ours(cls):
            cls._given.check(cls)
            return
        given = list(inspect.signature(cls.__init__).parameters.values())[1:]
        parameters = [each.name for each in given if each.kind is not each.VAR_KEYWORD]
        cls._takes = tuple(parameters) if len(parameters) == len(given) else ()
        alone = [name for name in parameters if not callable(getattr(cls, name, None))]  # a method may be overridden
        cls._given = Options(
            cls,
            dict.fromkeys([*parameters, *(elsewhere or {})]),
            ConfigurationError,
            elsewhere={**(elsewhere or {}), **where_made(cls.__name__, alone)},
        )

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __new__(cls, *_: object, **given: object) -> Self:
            cls._given.check(cls)  # it may have been given more since it was made
            if cls._takes and _is_ours(cls.__init__) and (unknown := given.keys() - {*cls._takes}):
                why = [found for name in sorted(unknown) if (found := cls._given.why(name)) is not None]
                raise ConfigurationError(
                    f"{cls.__name__} has no option {', '.join(sorted(unknown))}: {why[0] if why else 'it has ' + ', '.join(cls._takes)}"
                )
            return super().__new__(cls)

        def __getattr__(self, name: str) -> object:
            if name in self._given.known:
                raise ConfigurationError(f"{type(self).__name__} is not built: call super().__init__() in its __init__")
            raise no_attribute(self, name)

        def __setattr__(self, name: str, value: object) -> None:
            self._given.check_attribute(name, self, value)
            super().__setattr__(name, value)


class GivenFields:
    """A base of dataclasses that take their fields only as arguments. In the body of a class derived from them a field is refused."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if not _is_ours(cls):
            _given_to(cls).check(cls)

    if not TYPE_CHECKING:

        def __new__(cls, *given: object, **options: object) -> Self:
            if not _is_ours(cls):  # it may have been given more since it was made
                _given_to(cls).check(cls)
            if _is_ours(cls.__init__):
                fields = {field.name: field.kw_only for field in dataclasses.fields(cls)}
                check_options(cls.__name__, options, fields, ConfigurationError)
                check_by_name(cls.__name__, given[list(fields.values()).count(False) :], fields, ConfigurationError)
            return super().__new__(cls)


def _given_to(made: type) -> Options:
    return _given_fields(next(owner for owner in made.__mro__ if _is_ours(owner)))


@lru_cache
def _given_fields(base: type) -> Options:
    fields = dict.fromkeys(base.__dataclass_fields__)  # type: ignore[attr-defined]
    return Options(base, fields, ConfigurationError, elsewhere=where_made(base.__name__, fields))


def _is_ours(owner: object) -> bool:
    return str(owner.__module__).partition(".")[0] == "phronomy"


def _has_form_of_gate(owner: type, name: str, annotation: object) -> bool:
    """Say whether the attribute has the form of options that hold something back: a bool, names, or a mapping of names.

    A text has it under a name that says nothing but that a human is asked (`confirmation = "required"`).

    An annotation without a value counts too, where a colon may stand for an equals sign.
    """
    value = owner.__dict__.get(name, annotation)
    if name not in owner.__dict__ and isinstance(annotation, str):
        try:
            value = ast.literal_eval(annotation)
        except (ValueError, SyntaxError):  # the name of a type, as it should be
            return False
    if isinstance(value, bool):
        return True
    if isinstance(value, str):
        words = {*_words(name)}
        return bool(words & _GATED) and words <= _GATED | _SMALL
    return isinstance(value, Mapping | list | tuple | set | frozenset) and any(isinstance(each, str) for each in value)


def _is_data(value: object) -> bool:
    return isinstance(value, property) or value is None or not (callable(value) or hasattr(type(value), "__get__"))


def _public(owner: type) -> Iterator[tuple[str, object]]:
    """The public names in the body of a class, each with its value; None for an annotation alone."""
    for name in dict.fromkeys((*owner.__dict__, *inspect.get_annotations(owner))):
        if not name.startswith("_"):
            yield name, owner.__dict__.get(name)


def _attributes(owner: type) -> Iterator[tuple[str, object]]:
    """The public names in the body of a class, each with its annotation, which may be text."""
    annotations = inspect.get_annotations(owner)
    for name, _ in _public(owner):
        yield name, annotations.get(name, "")


def _parts(annotation: object) -> Iterator[object]:
    """An annotation and what it is made of, without what `Annotated` says of it."""
    yield annotation
    inner = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    for each in annotation if isinstance(annotation, list) else inner:
        yield from _parts(each)


def _members(annotation: object) -> list[object]:
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _words_of(annotation: object) -> list[str]:
    """The names in an annotation, be it text or not."""
    if isinstance(annotation, str):
        return re.findall(r"\w+", annotation)
    found: list[str] = []
    for part in _parts(annotation):
        if isinstance(part, ForwardRef):
            found += re.findall(r"\w+", part.__forward_arg__)
        else:
            found += [
                name for name in (getattr(part, "__name__", ""), getattr(get_origin(part), "__name__", "")) if name
            ]
            found += ["ClassVar"] if "ClassVar" in str(get_origin(part) or part) else []
    return found


def _types(options: Mapping[str, object]) -> set[str]:
    """The names of the types that are of options alone."""
    texts = [getattr(annotation, "__forward_arg__", str(annotation)) for annotation in options.values()]
    return {word for text in texts for word in re.findall(r"\b[A-Z]\w+", text)} - _ANYBODYS

"""Names of a package that load their module when they are first asked for."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping
from importlib import import_module
from types import FrameType


def load(package: str, name: str, places: Mapping[str, str], extras: Mapping[str, str] | None = None) -> object:
    """Import the module that has a name of the package, and return the object; a leading dot means a module of the package.

    `extras` has the extra that installs a module, for each module of others that may be missing. Raises `AttributeError` for a name
    that stands in no place, which is an `ImportError` in an import, and `ImportError`, which says what to install, if such a
    module is missing.
    """
    if name not in places:
        raise unknown(package, name, 2)
    try:
        return getattr(import_module(places[name], package), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if extras is None or missing not in extras:
            raise
        raise ImportError(f"{name} needs {missing}: pip install 'phronomy[{extras[missing]}]'", name=missing) from None


def unknown(package: str, name: str, frames: int = 1) -> AttributeError | ImportError:
    """The error for a name that a package has not, with what to write in its place, if that is known.

    `frames` is how many calls are between this one and whoever asked the package: its `__getattr__`, and what that calls.
    """
    said = f"module {package!r} has no attribute {name!r}"
    frame = inspect.currentframe()
    for _ in range(frames + 1):
        frame = None if frame is None else frame.f_back
    # Before Python looks for a module of this name, it asks the package, and nobody reads what it is told.
    if name.startswith("_") or frame is None or frame.f_globals.get("__name__") == "importlib._bootstrap":
        return AttributeError(said)
    from phronomy.foundation import foreign_words, spelling  # noqa: PLC0415  # where nothing is misspelt, nothing is compared

    words = foreign_words.instead_of(name)
    if words is None and (near := spelling.near(name, getattr(import_module(package), "__all__", ()), 0.7)):
        words = f"did you mean {near}?"
    if words is None:
        return AttributeError(said)
    if not _imports(frame):
        return AttributeError(f"{said}: {words}", name=name, obj=None)
    # Python makes an error of its own of an AttributeError there, and would leave out the words.
    return ImportError(f"cannot import name {name!r} from {package!r}: {words}", name=package)


def _imports(frame: FrameType) -> bool:
    """Whether the code is at a `from ... import ...`."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"

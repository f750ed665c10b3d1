"""Names of a package that load their module when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def load(package: str, name: str, places: Mapping[str, str], extras: Mapping[str, str] | None = None) -> object:
    """Import the module that has a name of the package, and return the object; a leading dot means a module of the package.

    `extras` has the extra that installs a module, for each module of others that may be missing. Raises `AttributeError` for a name
    that stands in no place, and `ImportError`, which says what to install, if such a module is missing.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(import_module(places[name], package), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if extras is None or missing not in extras:
            raise
        raise ImportError(f"{name} needs {missing}: pip install 'phronomy[{extras[missing]}]'", name=missing) from None

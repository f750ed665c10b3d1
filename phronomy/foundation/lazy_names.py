"""Names of a package that load their module when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def load(package: str, name: str, places: Mapping[str, str], extras: Mapping[str, str] | None = None) -> object:
    """Import the module that has a name of the package, and return the object; a leading dot means a module of the package.

    `extras` has the extra that installs a module, for each module of others that may be missing. Raises `AttributeError` for a name
    that stands in no place, which is an `ImportError` in an import, and `ImportError`, which says what to install, if such a
    module is missing.
    """
    if name not in places:
        raise unknown(package, name)
    try:
        return getattr(import_module(places[name], package), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if extras is None or missing not in extras:
            raise
        raise ImportError(f"{name} needs {missing}: pip install 'phronomy[{extras[missing]}]'", name=missing) from None


def unknown(package: str, name: str) -> AttributeError | ImportError:
    """The error for a name that a package has not: an `ImportError` with what to write, where people are known to look for it.

    Of an `AttributeError`, an import makes an error of its own without these words. So `hasattr` raises them, too.
    """
    from phronomy.foundation import foreign_words  # noqa: PLC0415  # where nothing is misspelt, nothing is compared

    if (words := foreign_words.instead_of(name)) is not None:
        return ImportError(f"cannot import name {name!r} from {package!r}: {words}", name=package)
    return AttributeError(f"module {package!r} has no attribute {name!r}")

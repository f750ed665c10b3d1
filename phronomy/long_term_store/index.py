"""Indexes: which entries fit a query best. An index is given the entries of one person alone, and keeps none of them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from phronomy.errors import ConfigurationError, LongTermStoreError
from phronomy.foundation.checks import check_no_tool, is_number
from phronomy.records.long_term_entries import Entry


class Index(Protocol):
    """Finds the entries that fit a query. Yours may use embeddings, a search engine, or anything else."""

    def rank(self, query: str, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return those of the `entries` that fit the query, the best first.

        The entries are all of one person, the newest last. It is called in the thread of whoever searches.
        """
        ...


class WordIndex:
    """Finds entries by their words, in the key or the text: rare words count more. Case and accents do not count."""

    def __repr__(self) -> str:
        return "WordIndex()"

    def rank(self, query: str, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that have a word of the query, the best first; of equal ones, the newest."""
        wanted = set(_words(query))
        words = [Counter(_words(f"{each.key} {each.text}")) for each in entries]
        known = Counter(word for each in words for word in each)
        scored: list[tuple[float, int]] = []
        for place, each in enumerate(words):
            # BM25 with k1 = 1.2 and b = 0: an entry is short, so its length says little.
            score = sum(
                math.log(1 + len(entries) / known[word]) * each[word] * 2.2 / (each[word] + 1.2)
                for word in sorted(wanted & each.keys())
            )
            if score > 0:
                scored.append((score, place))
        return [entries[place] for _, place in sorted(scored, reverse=True)]


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return re.findall(r"\w+", "".join(each for each in plain if not unicodedata.combining(each)))


class EmbeddingIndex:
    """Finds entries by the cosine of vectors. Your function makes the vectors; keep those that you want to use again.

    `embed` takes texts, and returns a vector of numbers for each, all of one length. For each search it gets the query
    first, and then each entry as its key, a colon and its text. Entries whose cosine is `threshold` or less are left
    out (-1 to 1). Raises `ConfigurationError`.
    """

    def __init__(self, embed: Callable[[Sequence[str]], Sequence[Sequence[float]]], *, threshold: float = 0.0) -> None:
        if not callable(embed):
            raise ConfigurationError(f"embed is a function of a list of texts, not {type(embed).__name__}")
        check_no_tool(embed)
        if not is_number(threshold) or not -1 <= threshold <= 1:
            raise ConfigurationError("threshold is a number from -1 to 1")
        self._embed, self._threshold = embed, threshold

    def __repr__(self) -> str:
        return f"EmbeddingIndex(threshold={self._threshold})"

    def rank(self, query: str, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that are near the query, the nearest first.

        Raises `LongTermStoreError` if `embed` does not return a vector for each text, and what `embed` raises.
        """
        if not entries:
            return []
        vectors = self._embed([query, *(f"{each.key}: {each.text}" for each in entries)])
        if len(vectors) != len(entries) + 1 or len({len(each) for each in vectors}) != 1:
            raise LongTermStoreError("embed returns a vector for each text, all of one length; it did not")
        first = vectors[0]
        scored = [(_cosine(first, each), place) for place, each in enumerate(vectors[1:])]
        near = [each for each in scored if each[0] > self._threshold]  # what is no number is near nothing
        return [entries[place] for _, place in sorted(near, reverse=True)]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0

"""A long-term store beside the state of runs: texts that are kept of a person, apart for each tenant and each person."""

from phronomy.long_term_store.index import EmbeddingIndex, Index, WordIndex
from phronomy.long_term_store.store import LongTermStore
from phronomy.records.long_term_entries import Entry

__all__ = ["EmbeddingIndex", "Entry", "Index", "LongTermStore", "WordIndex"]

"""`StoreContract`: what a store must do, as tests to run over yours.

Subclass it in a test file and give `make_store`; pytest finds the rest. pytest itself is not imported here. pytest makes a new object
of the class for each test, so whatever a fixture puts on `self` is that test's alone:

    import pytest
    from phronomy.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture(autouse=True)
        def database(self, tmp_path):
            self.path = tmp_path / "runs.db"
            yield
            self.close_stores()  # before the database goes; after the test at the latest

        def make_store(self, **options):
            return MyStore(self.path, **options)

`options` are some of `clock`, `tenant`, `lease` and `ttl`, as `Store` takes them. Called again in the same test, `make_store` opens
the same data in another object, as another process would; a store that keeps its data in the object says `durable = False`, and is
tested without that. To see how it does when its file or its connection is lost between any two calls, give a store that opens another
for each call.

The tests say what is promised in the docstrings of `phronomy.stores.rows` and of `Store`: each primitive and each method that is built
on them, what is refused and that nothing was written then, tenants, texts and numbers to the last byte, threads that race, and whole
runs of an agent through both drivers: suspended, resumed, cancelled, forked, expired, announced, audited, lost and recovered. No test
sleeps, and time passes only where a test moves the clock.
"""

from __future__ import annotations

from phronomy.testing.store_contract.base import Clock
from phronomy.testing.store_contract.batches import BatchRaceTests, BatchTests
from phronomy.testing.store_contract.derived import ListTests, LoadTests
from phronomy.testing.store_contract.documents import DocumentRaceTests, DocumentTests
from phronomy.testing.store_contract.keeps import HoldTests, RemoveTests, TextsKeptTests
from phronomy.testing.store_contract.notes import NoteTests
from phronomy.testing.store_contract.pending import PendingTests
from phronomy.testing.store_contract.reads import AuditTests, BranchTests, CheckpointTests, LineageTests
from phronomy.testing.store_contract.retention import RetentionTests
from phronomy.testing.store_contract.runs import AnnounceTests, ExpiryTests, RecoverTests, ResumeTests, TrailTests
from phronomy.testing.store_contract.tenants import RaceTests, TenantTests, TextTests
from phronomy.testing.store_contract.writes import AppendTests, CreateTests

__all__ = ["Clock", "StoreContract"]


# pytest begins with the last base: what the others rest on.
class StoreContract(
    TrailTests,
    RecoverTests,
    AnnounceTests,
    ExpiryTests,
    ResumeTests,
    RaceTests,
    BatchRaceTests,
    DocumentRaceTests,
    TextTests,
    TenantTests,
    RetentionTests,
    ListTests,
    LoadTests,
    PendingTests,
    AuditTests,
    CheckpointTests,
    BranchTests,
    LineageTests,
    DocumentTests,
    TextsKeptTests,
    RemoveTests,
    HoldTests,
    BatchTests,
    NoteTests,
    AppendTests,
    CreateTests,
):
    """The suite of tests that every store passes. Subclass it and override `make_store`."""

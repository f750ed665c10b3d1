"""Tenants kept apart by the database itself, as the page on stores shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from servers import postgres, postgres_url

from phronomy import Agent, PostgresStore, StoreError, tool
from phronomy.testing import ScriptedModel, call

PAGE = Path(__file__).parent.parent / "docs" / "stores.md"


def test_the_row_level_security_of_the_page_keeps_tenants_apart() -> None:
    """docs/stores.md: run as it stands there, a role sees its own tenant's rows, and can do all that a worker does."""
    found = re.search(r"```text\n(CREATE ROLE acme.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    postgres().psql(PostgresStore.setup_sql("agents"))
    postgres().psql(found[1])
    try:
        url = postgres_url().replace("postgres@", "acme@")
        with (
            PostgresStore(url, schema="agents", setup=False, tenant="acme") as own,
            PostgresStore(url, schema="agents", setup=False, tenant="globex") as others,
            PostgresStore(postgres_url(), schema="agents", setup=False, tenant="globex") as globex,
        ):
            for store in (own, globex):
                agent = desk(store)
                asked = agent.invoke("go", thread_id="t").checkpoint
                agent.resume(asked.id, approved=True)
                agent.invoke("go", thread_id="t")
            assert (own.count(), globex.count(), others.count(), list(others.audit())) == (1, 1, 0, [])
            with pytest.raises(StoreError, match="lacks a right"):
                desk(others).invoke("go")
            assert own.prune() > 0
    finally:
        postgres().psql("DROP SCHEMA agents CASCADE; DROP ROLE acme;")


def desk(store: PostgresStore) -> Agent[Any, str]:
    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund an order."""
        return "on its way"

    model = ScriptedModel.by_turn([call("refund", {"order_id": 1}), "Done."])
    return Agent(name="desk", model=model, tools=[refund], store=store)

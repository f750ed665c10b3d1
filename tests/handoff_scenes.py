"""What the tests of handoffs share: an office of agents that hand a conversation over, and every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drivers import SYNC, Driver, open_kind
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import Agent, Checkpoint, Handoff, PostgresStore, RedisStore, Result, Store, tool
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene
from phronomy.testing.scripted import ScriptedCall

KINDS = ("memory", "sqlite", "postgres", "redis")
"""The kinds of store that `kept` opens."""


@contextmanager
def kept(kind: str, folder: Path) -> Iterator[Store]:
    """A store of this kind. One whose server does not start fails the test."""
    if kind == "postgres":
        with postgres_schema() as schema, PostgresStore(postgres_url(), schema=schema) as store:
            yield store
    elif kind == "redis":
        with RedisStore(redis_url()) as store:
            yield store
    else:
        with open_kind(kind, folder) as store:
            yield store


def to(target: str, message: str = "") -> ScriptedCall:
    """The call that hands the conversation over."""
    return call(f"transfer_to_{target}", {"message": message} if message else {})


class Office:
    """Triage, billing and refunds: triage hands over to both of the others, these to triage and to each other.

    One model speaks for all, and is told apart by its instructions; it keeps no place in its script, so that another process goes on.
    What is done to an order stands in `done`. `triage`, `billing`, `refunds`, and `way`, from triage to billing, are options.
    """

    def __init__(
        self,
        store: Store | None,
        *replies: Any,
        driver: Driver = SYNC,
        model: ScriptedModel | None = None,
        way: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.model = model or ScriptedModel.by_turn(list(replies))
        self.done: list[str] = []
        self.driver = driver

        def look(order: int = 1) -> str:
            """Look an order up."""
            self.done.append(f"look {order}")
            return f"order {order} was paid twice"

        def refund(order: int = 1) -> str:
            """Pay an order back."""
            self.done.append(f"refund {order}")
            return f"order {order} is paid back"

        self.look = tool(driver.function(look))
        self.refund = tool(requires_approval=True)(driver.function(refund))
        self.refunds = self.agent("refunds", ["billing", "triage"], [self.refund], **options.get("refunds", {}))
        self.billing = self.agent("billing", [self.refunds, "triage"], [self.refund], **options.get("billing", {}))
        ways = [Handoff(self.billing, **(way or {})), self.refunds]
        self.triage = self.agent("triage", ways, [self.look], store=store, **options.get("triage", {}))

    def agent(self, name: str, handoffs: list[Any], tools: list[Any], /, **options: Any) -> Agent[Any, Any]:
        """An agent of the office."""
        mine = {"model": self.model, "instructions": f"I am {name}.", "description": f"For {name}."}
        return Agent(name=name, **{**mine, "handoffs": handoffs, "tools": tools, **options})

    @property
    def asked(self) -> list[str]:
        """Who was asked, in order."""
        return [str(request.system).removeprefix("I am ").removesuffix(".") for request in self.model.requests]

    def run(self, input: Any = "Help.", **options: Any) -> Result[Any]:
        """A run that begins with triage."""
        return self.driver.invoke(self.triage, input, **options)

    def resume(self, at: Result[Any] | Checkpoint | str, *answers: Any, **options: Any) -> Result[Any]:
        """Go on; the answers are for what waits, in order."""
        checkpoint = at.checkpoint if isinstance(at, Result) else at
        if answers:
            assert isinstance(checkpoint, Checkpoint)
            waits = [item.id for item in checkpoint.pending]
            options["decisions"] = dict(zip(waits, answers, strict=True))
        return self.driver.resume(self.triage, checkpoint, **options)


def went(result: Result[Any] | Checkpoint) -> list[str]:
    """How the conversation went."""
    checkpoint = result if isinstance(result, Checkpoint) else result.checkpoint
    return [f"{made.source} > {made.target}" for made in checkpoint.handoffs]


# What is killed


def office_of(scene: Scene) -> Office:
    """An office whose runs are killed, and gone on with by others."""
    return Office(
        scene.store, to("billing", "x"), call("refund"), to("triage"), "done", way={"requires_approval": True}
    )


def order(scene: Scene) -> None:
    """A run with two handoffs, one of them gated, and a gated call between them."""
    office = office_of(scene)
    result = office.run()
    while result.suspended:
        result = office.triage.resume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))


def settle(scene: Scene) -> None:
    """Bring all to its end."""
    scene.settle(office_of(scene).triage)

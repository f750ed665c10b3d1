"""A run with limits: it stops at a limit, and goes on only with a higher one.

    OPENAI_API_KEY=... python examples/limits.py

Limits count over the whole run with all its resumes, without the time of humans. At a limit the run stops at its last
checkpoint: nothing is lost, and no settled call runs again. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os

from phronomy import Agent, LimitExceeded, Limits, MemoryStore, tool

STORE = MemoryStore()


@tool
def next_page(after: int) -> list[str]:
    """Read the orders of the page after this one; the first is after 0."""
    print(f"(page {after + 1} is read)")
    return [f"order {after}{n}" for n in range(3)]


def clerk(limits: Limits) -> Agent:
    """The same agent, with other limits."""
    return Agent(
        name="clerk",
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="Read the pages one by one, and say how many orders there are on the first four.",
        tools=[next_page],
        store=STORE,
        limits=limits,
    )


def main() -> None:
    given = Limits(turns=10, tool_calls=2, equal_calls=2, tokens=50_000, seconds=120)
    try:
        print(clerk(given).invoke("Count the orders.").output)
    except LimitExceeded as error:
        assert error.checkpoint is not None
        print(
            f"stopped: {error.limit} may be {error.maximum:g}, and is {error.used:g}; so far {error.checkpoint.usage}"
        )
        if input("Give it more? [y/N] ").strip().lower() == "y":
            more = given.model_copy(update={"tool_calls": 8})
            print(clerk(more).resume(error.checkpoint).output)


if __name__ == "__main__":
    main()

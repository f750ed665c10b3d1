"""A long-term store: what a person says is kept beyond the run, after somebody has approved it.

    python examples/long_term_store.py

In the first run, ann says what she does not eat; the agent wants to keep that, and you approve it. In the second run,
another agent in another conversation reads it. A run that bob asks for finds nothing of ann. In the end, all that is
kept of ann is exported and deleted. A scripted model answers, so you need no key.
"""

from __future__ import annotations

from phronomy import Agent, MemoryStore
from phronomy.long_term_store import LongTermStore
from phronomy.testing import ScriptedModel, call

STORE = MemoryStore()
LONG_TERM = LongTermStore(STORE)


def host() -> Agent:
    """Keeps what guests say."""
    model = ScriptedModel.by_turn([call("remember", {"key": "diet", "text": "no nuts"}), "I will remember that."])
    return Agent(name="host", model=model, tools=[*LONG_TERM.tools()], store=STORE)


def cook(model: ScriptedModel) -> Agent:
    """Looks up what is known of a guest; some of it is in its instructions already."""
    instructions = LONG_TERM.instructions("Plan a dinner for the guest.")
    return Agent(name="cook", model=model, instructions=instructions, tools=[LONG_TERM.recall()], store=STORE)


def main() -> None:
    result = host().invoke("By the way, I eat no nuts.", requester="ann")
    while result.suspended:
        [pending] = result.checkpoint.pending
        answer = input(f"Keep {pending.args['text']!r} under {pending.args['key']!r}? [y/N] ").strip().lower()
        result = host().resume(result.checkpoint, approved=answer == "y", by="terminal")

    for person in ("ann", "bob"):
        model = ScriptedModel.by_turn([call("recall", {"query": "nuts"}), "Dinner is planned."])
        result = cook(model).invoke("Plan my dinner.", requester=person)
        print(f"{person}: recall found {result.checkpoint.messages[-2].text}")
        print(f"{person}: the instructions end with {(model.requests[0].system or '').splitlines()[-1]}")

    print(f"exported: {len(LONG_TERM.export('ann').splitlines())} entry, deleted: {LONG_TERM.delete_all('ann')}")
    print(f"left: {LONG_TERM.export('ann') or 'nothing'}")


if __name__ == "__main__":
    main()

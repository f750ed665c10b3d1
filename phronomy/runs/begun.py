"""Runs that are begun once: under an id that the caller gives, and left to a worker.

The id is made of what asks for the run, such as the id of a message. The store refuses a second run of one id, so whoever asks again,
also another process that was killed in between, finds the run there. A run is begun as if its worker had died at once: a worker, or
`recover_all`, drives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy.records.calls import Input
from phronomy.records.principals import Principal
from phronomy.runs.finding.beginning import AlreadyBegun, Beginning
from phronomy.runs.runs import Runs
from phronomy.stores import dispatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from phronomy.runs.options import CallOptions


def begin_once(
    agent: Runs[Any, Any],
    input: Input,
    *,
    run_id: str,
    thread_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    requester: str | Principal | None = None,
    scopes: Iterable[str] | None = None,
) -> bool:
    """Begin a run under this id, and leave it to a worker; returns False, with nothing done, if there is one already.

    A run of the thread that stopped on a failure is superseded. Raises `ThreadBusy` if the thread has another run that has not ended.
    """
    if agent.store.branches(run_id=run_id):  # most repetitions come so late; the store refuses the others
        return False
    options: CallOptions[Any] = {} if scopes is None else {"scopes": scopes}
    spec, deps = agent._for_call(options, None)  # nothing is driven here, so an agent may be async
    beginning = Beginning(
        input=input,
        thread_id=thread_id,
        history=None,
        metadata=metadata,
        label=None,
        requester=requester,
        run_id=run_id,
    )
    try:
        agent._begin(spec, deps, beginning, "supersede_failed")
    except AlreadyBegun:
        return False
    dispatch.wake(agent.store.dispatch, run_id)
    return True

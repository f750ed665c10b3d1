"""What may be edited where a run waits, and by whose leave: the one place that knows.

- A call that asks for approval, or stands at a breakpoint: its arguments. They are validated, and shown to the tool guardrails, the
  gate and the policies anew. Of an external tool nothing can be edited, since nothing here runs it.
- A stop before the model was first asked: the input of the run, and nothing else. It is shown to the input guardrails, if the run has
  some. Later the model has read the input, and another would make the record say what did not happen; so `stop_points.py` shows it, and
  `edited_input` takes it, as long as the turn is 0.
- Any other stop, and a question that a body asks: nothing. A question is answered.
- A graph between its nodes: channels of its state, as its schema allows. The graph knows its schema, and does that by itself:
  `Flow.edits`.

A human approves what they have seen (law 2). So what they edit is judged before their decision is recorded, as if the model had asked
for it; and if that would change it once more, the decision is refused rather than the edit altered behind their back.

What was edited in a run inside a call is not judged there again. It was judged when the decision was taken, by the worker that took it,
with the spec of that inner run; the decision carries the outcome. A crash in between therefore hands down the same edit, not another.
"""

from __future__ import annotations

from typing import Any

from phronomy.approvals.answers import run_elsewhere
from phronomy.conversation.input import read_input
from phronomy.engine.judging.brief import lapse
from phronomy.engine.run import Runner
from phronomy.errors import ConfigurationError, InvalidDecision
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.guardrails.guardrail import Stage
from phronomy.records.calls import Call, Guarded, Judgement
from phronomy.records.checkpoint import begun_with
from phronomy.records.decisions import Answer, Approve, Decision, call_digest


def judged_again(runner: Runner, call: Call, answer: Answer) -> Call | None:
    """The call to be judged anew: as if the model had asked for it with the edited arguments, or as it is if its gate has changed.

    To let it go on at a breakpoint is not to approve of it. None: it stays as it was judged. Raises `InvalidDecision`.
    """
    # Only an approval goes on with the call, so only it can be of other arguments.
    if not isinstance(answer, Approve) or call.gate or call.why == "question":
        return None
    tool = runner.spec.tool(call)
    # By the record or by the agent, whichever says so. Where they differ it is drift, and the stricter of them counts.
    external = (tool is not None and tool.external) or (call.tool is not None and call.tool.external)
    if external and call.why != "breakpoint":
        raise run_elsewhere(call.pending_id, call.name)
    # As if the model had asked so: the same validation, the same guardrails, the same gate. An edit is no way around any of them.
    if answer.args is not None:
        check_guarded(runner, call, "tool")
        return call.evolve(arguments=str(answer.json_text("args")))
    # Nothing was edited. It is judged again only where its gate has changed while it stood at a breakpoint, since nobody was asked
    # to approve it then.
    if call.why != "breakpoint" or tool is None or call.tool is None or tool.gate == call.tool.gate:
        return None
    return call.evolve(arguments=call.json_text("args"))


def edited_input(runner: Runner, call: Call, answer: Approve) -> Judgement:
    """What is edited at a point of the run: the input, before the model has seen it; guardrails are asked about it anew.

    Raises `InvalidDecision`.
    """
    # What was shown decides what can be edited. The state may have moved on since, but it was this that somebody looked at.
    given, shown = answer.args or {}, call.args or {}
    if "input" not in shown or given.keys() != {"input"}:
        can = "the input alone can be edited" if "input" in shown else "nothing can be edited any more: let it go on"
        raise InvalidDecision(
            f"pending {call.pending_id} stands at {call.point or 'a pause'}, where {can}",
            pending_id=call.pending_id,
        )
    check_guarded(runner, call, "input")
    try:
        value, _ = read_input(given["input"])
    except ConfigurationError as error:
        raise InvalidDecision(f"pending {call.pending_id}: {error}", pending_id=call.pending_id) from None
    args: Any = canonical({"input": value})
    assert call.tool is not None
    judged = Judgement(id=call.id, verdict="run", tool=call.tool, args=args, digest=call_digest(call.tool, args))
    return judged.evolve(verdict="ask") if runner.spec.input_guardrails else judged


def as_shown(call: Call, judged: Judgement) -> Judgement:
    """The judgement of edited arguments, bound to the tool as it was shown: the record of the call keeps that one.

    A release may have changed the tool since, and a digest of the new one would be of nothing that is in the record.
    """
    if judged.tool is None:  # it cannot run, and the decision is refused
        return judged
    assert call.tool is not None, "it was shown"
    return judged.evolve(tool=call.tool, digest=call_digest(call.tool, judged.json_text("args")))


def check_edit(call: Call, guarded: Guarded | None) -> None:
    """Refuse edited arguments that guardrails would change: what a human approves is what runs. Raises `InvalidDecision`."""
    # They let it pass in another form. A human who approved the one must not find the other in the record (law 2).
    if guarded is not None and guarded.__dict__["content"] is not None:
        names = ", ".join(name for name, said in guarded.said.items() if said == "transformed")
        raise InvalidDecision(
            f"the edited arguments of pending {call.pending_id} would be changed by {names}: give them as it lets them through",
            pending_id=call.pending_id,
        )


def check_guarded(runner: Runner, call: Call, stage: Stage) -> None:
    """Refuse an edit where guardrails that the run began with are not there: nobody would look at it. Raises `InvalidDecision`."""
    # The worker that takes the decision may have been configured without them: a script, a page of an admin. Then the edit would be
    # the one input that no guardrail has seen.
    names = begun_with(runner.state).get(stage)
    there = {item.name for item in (runner.spec.input_guardrails if stage == "input" else runner.spec.tool_guardrails)}
    if gone := [name for name in (names if isinstance(names, list) else []) if name not in there]:
        raise InvalidDecision(
            f"pending {call.pending_id} cannot be edited without {stage} guardrail {', '.join(map(str, gone))}, with which the run"
            f" began: give {stage}_guardrails=[...] with the decision, or let it go on as it is",
            pending_id=call.pending_id,
        )


def edited_by(child: Runner, decision: Decision, call: Call | None) -> Judgement | None:
    """The judgement of arguments that a recorded decision edited in: they were validated and gated when it was taken."""
    # The judgement is put together from what the decision says, and not made again. A policy that changed since must not turn an
    # approved edit into another request.
    # One that was taken without the agent's code is checked there, by the run that asked.
    if decision.args is None or call is None or call.tool is None or not decision.judged:
        return None
    args: Any = JsonText(decision.json_text("args"))
    digest = call_digest(call.tool, args)
    judged = Judgement(
        id=call.id,
        verdict="run",
        tool=call.tool,
        args=args,
        digest=digest,
        repeatable=call.repeatable,
        brief=decision.brief,
    )
    # The input of the inner run was edited. Its guardrails are asked there, in its own chain.
    if call.gate:
        return judged.evolve(verdict="ask" if child.spec.input_guardrails else "run")
    if decision.asks is None or (tool := child.spec.tool(call)) is None:
        return judged
    lapses, on_expiry = lapse(child, tool, decision.brief, decision.at)
    asked = {"pending_id": decision.asks, "requested_at": decision.at, "expires_at": lapses, "on_expiry": on_expiry}
    verdict = "ask" if decision.asked_by else "pend"
    return judged.evolve(verdict=verdict, why="approval", asked_by=decision.asked_by, **asked)

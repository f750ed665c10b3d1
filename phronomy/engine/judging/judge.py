"""Judging calls: validated arguments, guardrails, and whether the gate of each asks somebody.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from functools import partial
from typing import Any, Final

from phronomy.approvals.policy import Handled, Rule, says, stricter
from phronomy.concurrency.workers import ain_thread
from phronomy.engine.judging.brief import abriefed, briefed, counted, lapse, terms_of, tool_context
from phronomy.engine.judging.guard import guarding
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.engine.spec import inside_of
from phronomy.engine.stop_points import at_call
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonText, clean
from phronomy.guardrails.verdict import Verdict, acheck, check
from phronomy.records.calls import Call, CallResult, Guarded, Judged, Judgement, Outcome
from phronomy.records.decisions import NO_BRIEF, Reject, block_key, call_digest
from phronomy.rules.texts_for_model import BLOCKED, BLOCKED_TOOL
from phronomy.stores.log.kept_members import digest_of_text
from phronomy.tools.approval import Review
from phronomy.tools.context import InvalidArguments
from phronomy.tools.tool import Tool


def judge(runner: Runner, calls: Sequence[Call]) -> Generator[Outcome]:
    """Validate the arguments of each call, and ask its gate."""
    judgements: list[Judgement] = []
    said: list[Guarded] = []
    for call in calls:
        judgement, guarded = judge_call(runner, call)
        judgements.append(judgement)
        if guarded is not None:
            said.append(guarded)
    yield from said  # all or nothing: if one call cannot be judged, all are judged anew
    yield Judged(judgements=tuple(judgements))


async def ajudge(runner: Runner, calls: Sequence[Call]) -> AsyncGenerator[Outcome]:
    """As `judge`."""
    judgements: list[Judgement] = []
    said: list[Guarded] = []
    for call in calls:
        judgement, guarded = await ajudge_call(runner, call)
        judgements.append(judgement)
        if guarded is not None:
            said.append(guarded)
    for outcome in said:
        yield outcome
    yield Judged(judgements=tuple(judgements))


def judge_call(runner: Runner, call: Call) -> tuple[Judgement, Guarded | None]:
    """The verdict on one call, and what guardrails said of it."""
    # In this order: what a human refused for good is refused. Arguments that mean nothing are told to the model, and nobody else is
    # bothered. Then come the guardrails, which may change the arguments, and only then whoever has to approve them: what they see
    # must be what runs (law 2).
    tool = runner.tool(call)
    judgement, guarded = understand(runner, call, tool), None
    if tool is None:
        return judgement, None
    # Before the guardrails and the gate: neither a guardrail that rewrites, nor a policy that has been loosened, brings back what a
    # human refused. Another agent of the run that asks for the same gets the same answer (law 1).
    if (told := why_refused(runner, tool, judgement)) is not None:
        return judgement.evolve(verdict="reject", result=CallResult(kind="rejected", content=told)), None
    if judgement.verdict == "invalid":
        return judgement, None
    if runner.spec.tool_guardrails:
        verdict = check(runner.spec.tool_guardrails, subject_of(judgement), guarding(runner, "tool", tool))
        judgement, guarded = let_through(runner, call, tool, judgement, verdict)
        if judgement.result is not None:
            return judgement, guarded
    # What needs no user code is answered without a context and without making values of the text: of most tools, that is all.
    gate, rules = tool.gate, runner.rules_about(call, tool)
    if gate != "predicate" and not rules and not (tool.review is not None and tool.review.people.counts):
        judgement = gated(
            runner, call, judgement, tool, gate == "always", () if tool.review is None else (tool.review,), 1
        )
        return briefed(runner, call, judgement, tool, ()), guarded
    context = tool_context(runner, call, tool, judgement.digest)
    try:
        # A predicate is given what the body will be given. On the raw text it could be told one thing, and the body do another.
        values = tool.bind(judgement.json_text("args"))
    # So it is with arguments. Nothing was run, and it is told so, since a model may take any error for a sign that something
    # happened.
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}"), guarded
    answer = tool.ask_gate(values, context)
    own = says(answer) == "ask"
    judgement = asked_first(judgement, answer, rules)
    asking: list[Rule] = []
    for rule in rules:
        # Every rule is asked, though the gate asks already: each says for whom the approval is, and the handler of one level must
        # not answer for another.
        other = rule.ask(tool, values, context)
        judgement, answer = at_least(judgement, answer, rule, other)
        asking += [rule] if says(other) == "ask" else []
    answer, levels = counted(answer, levels_of(tool, own, asking), partial(tool.shown, values), context)
    judgement = gated(runner, call, judgement, tool, answer, levels, own + len(asking))
    return briefed(runner, call, judgement, tool, asking), guarded


async def ajudge_call(runner: Runner, call: Call) -> tuple[Judgement, Guarded | None]:
    """As `judge_call`."""
    tool = runner.tool(call)
    judgement, guarded = await aunderstand(runner, call, tool), None
    if tool is None:
        return judgement, None
    if (told := why_refused(runner, tool, judgement)) is not None:
        return judgement.evolve(verdict="reject", result=CallResult(kind="rejected", content=told)), None
    if judgement.verdict == "invalid":
        return judgement, None
    if runner.spec.tool_guardrails:
        verdict = await acheck(runner.spec.tool_guardrails, subject_of(judgement), guarding(runner, "tool", tool))
        judgement, guarded = let_through(runner, call, tool, judgement, verdict)
        if judgement.result is not None:
            return judgement, guarded
    gate, rules = tool.gate, runner.rules_about(call, tool)
    if gate != "predicate" and not rules and not (tool.review is not None and tool.review.people.counts):
        judgement = gated(
            runner, call, judgement, tool, gate == "always", () if tool.review is None else (tool.review,), 1
        )
        return await abriefed(runner, call, judgement, tool, ()), guarded
    context = tool_context(runner, call, tool, judgement.digest)
    try:
        values = tool.bind(judgement.json_text("args"))
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}"), guarded
    answer = await tool.aask_gate(values, context)
    own = says(answer) == "ask"
    judgement = asked_first(judgement, answer, rules)
    asking: list[Rule] = []
    for rule in rules:
        other = await rule.aask(tool, values, context)
        judgement, answer = at_least(judgement, answer, rule, other)
        asking += [rule] if says(other) == "ask" else []
    answer, levels = counted(answer, levels_of(tool, own, asking), partial(tool.shown, values), context)
    judgement = gated(runner, call, judgement, tool, answer, levels, own + len(asking))
    return await abriefed(runner, call, judgement, tool, asking), guarded


_ASKS: Final = Judgement.model_construct(id="", verdict="ask")
"""What judging begins with. What is put into it are values of a call and of its tool, which are valid."""


def understand(runner: Runner, call: Call, tool: Tool | None) -> Judgement:
    """The call with its arguments validated and default-filled; the verdict stands at `ask` until the gate has answered."""
    if tool is None:
        # The model made a name up. It is told what there is, and asks again; a failure of the run would need a human for what a
        # model can mend. Of a tool whose scopes the run has not, it reads the same words: they must not tell that there is one.
        known = ", ".join(sorted(runner.tools)) or "none"
        return invalid(call, f"There is no tool named {call.name[:80]!r}. The tools are: {known}.")
    conversation = runner.spec.conversation
    if conversation is not None and (why := conversation.refuses(runner.state, call)) is not None:
        return invalid(call, why)
    try:
        args: Any = tool.read(call.arguments or "")
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}")
    if (why := why_cut_off(runner)) is not None:  # what is valid by chance is not what the model was about to ask for
        return invalid(call, f"The reply was cut off before its end ({why}), so nothing was run. Call the tool again.")
    # The path is in it: the approval of a call of this agent is none for the same tool of another.
    identity = tool.identity(runner.state.path)
    digest = call_digest(identity, args)
    # A run inside keeps its own record of what it has done. To go on with it after a crash repeats nothing.
    repeatable = tool.idempotent or inside_of(runner.spec, runner.state, call) is not None
    facts: dict[str, Any] = {"tool": identity, "args": args, "digest": digest, "repeatable": repeatable}
    return _ASKS.evolve(id=call.id, **facts, return_direct=tool.return_direct)


async def aunderstand(runner: Runner, call: Call, tool: Tool | None) -> Judgement:
    """As `understand`; in a thread, where the schema of the arguments is somebody else's and may be made to take long."""
    # A schema that came from a server may be made so that a check of it takes minutes. In a thread, it takes them from nobody else.
    if tool is None or not tool.reads_apart:
        return understand(runner, call, tool)
    return await ain_thread(lambda: understand(runner, call, tool), None)


def why_cut_off(runner: Runner) -> str | None:
    """Why the reply with the calls of the open turn is not whole; None if it is."""
    replies = (message for message in reversed(runner.state.messages) if message.role == "assistant")
    return next((message.finish_reason for message in replies), None)


def why_refused(runner: Runner, tool: Tool, judgement: Judgement) -> str | None:
    """The text for the model of a call that was refused for good, or whose tool was; None for any other call.

    A refusal of a human or a handler counts in all agents of the run, a refusal of a guardrail or a policy in this agent.
    """
    found = list(runner.shared.refused.values())  # a run beside this one may put a refusal there meanwhile
    keys = {*runner.state.blocked, *(decision.blocks for decision in found)}
    if not keys:
        return None
    identity = tool.identity()
    if block_key(identity) in keys:
        return BLOCKED_TOOL
    if judgement.verdict == "invalid":
        return None
    text = judgement.json_text("args")
    if judgement.digest in keys or block_key(identity, text) in keys:
        return BLOCKED
    # Of a decision by an earlier version there is the digest alone. It was made for the place at which the call was refused: it
    # covers the path of the agent, and another agent of the run asks from another path.
    older = (each for each in found if each.blocks is None)
    return BLOCKED if any(call_digest(tool.identity(each.path), text) == each.digest for each in older) else None


def subject_of(judgement: Judgement) -> JsonText:
    """The arguments that guardrails are asked about."""
    text: JsonText = judgement.__dict__["args"]
    return text


def let_through(
    runner: Runner, call: Call, tool: Tool, judgement: Judgement, verdict: Verdict
) -> tuple[Judgement, Guarded]:
    """The judgement after guardrails: with the arguments that they made of it, validated anew, or refused."""
    # What each of them said is in the record, also where all let it pass: law 1 is about what was looked at, not about what was
    # found.
    guarded = Guarded(
        stage="tool", said=dict(verdict.passed), content=verdict.value, refusal=verdict.refusal, id=call.id
    )
    if (refusal := verdict.refusal) is not None:
        result = CallResult(
            kind="rejected", content=f"A guardrail refused this call, so it was not run. {refusal.message}"
        )
        return judgement.evolve(verdict="reject", then=refusal.then, result=result), guarded
    if verdict.value is None:
        return judgement, guarded
    # Validated anew, with a new digest: a guardrail is no way around the schema.
    return understand(runner, call.evolve(arguments=str(verdict.value)), tool), guarded


def invalid(call: Call, told: str) -> Judgement:
    """The verdict on a call that cannot run, even if somebody approves it."""
    return Judgement(id=call.id, verdict="invalid", result=CallResult(kind="invalid", content=told))


def asked_first(judgement: Judgement, answer: bool | Reject, rules: Sequence[Rule]) -> Judgement:
    """The judgement, with a note that the gate of the tool asks, where rules may ask as well."""
    return judgement.evolve(asked_by=("",)) if rules and says(answer) == "ask" else judgement


def at_least(
    judgement: Judgement, answer: bool | Reject, rule: Rule, other: bool | Reject
) -> tuple[Judgement, bool | Reject]:
    """The stricter of the answer so far and the answer of a rule.

    A person who is asked because of a rule is told the rule.
    """
    if says(other) == "ask" and rule.of not in judgement.asked_by:
        judgement = judgement.evolve(asked_by=(*judgement.asked_by, rule.of))
    if not stricter(other, answer):
        return judgement, answer
    return judgement.evolve(reason=f"{rule.told[0].upper()}{rule.told[1:]} asks for an approval."), other


def levels_of(tool: Tool, own: bool, rules: Sequence[Rule]) -> Sequence[Review]:
    """What those who ask require, the tool first: each of them is met by itself. `own` says that the tool asks."""
    given = (tool.review if own else None, *(rule.review for rule in rules))
    return [each for each in given if each is not None]


def gated(
    runner: Runner,
    call: Call,
    judgement: Judgement,
    tool: Tool,
    answer: bool | Reject,
    levels: Sequence[Review],
    asking: int,
) -> Judgement:
    """The judgement with what the gate answered. Only a plain False lets the call run unasked, unless it is at a breakpoint.

    `levels` are the requirements of those who ask, and `asking` is how many ask.
    """
    if isinstance(answer, Reject):
        reason = f" Reason: {answer.reason}" if answer.reason else ""
        result = CallResult(kind="rejected", content=f"A policy rejected this call, so it was not run.{reason}")
        return judgement.evolve(verdict="reject", then=answer.then, result=result)
    # A predicate that returns None, 0 or nothing at all has not said no. It is asked about (law 1).
    asks = answer is not False
    flow = runner.spec.flow
    found, stops = None, False
    # A call that is judged again, because its arguments were edited, waits at its stop already.
    if call.status == "new":  # what was edited, where it waited, was looked at there
        found = at_call(runner, call, judgement, asks=asks) if runner.breakpoints is not None else None
        stops = found is not None or (flow is not None and flow.stops(runner.state, call))
    if not asks and not stops:
        return judgement.evolve(verdict="run")
    runner.shared.texts[tool.schema_hash] = tool.schema_text
    runner.shared.texts[tool.description_hash] = clean(tool.description)
    if (returns := tool.result_schema_text) is not None:
        runner.shared.texts[digest_of_text(returns)] = returns
    # The deadline counts from here, and not from when the human is told: it is stored with the request, and a crash in between does
    # not start it anew.
    at = now(runner.ledger.store)
    request: dict[str, Any] = {"pending_id": new_id("pend"), "requested_at": at}
    if (terms := terms_of(levels, asking, runner.state) if asks and levels else NO_BRIEF) is not NO_BRIEF:
        judgement = judgement.evolve(brief=terms)
    expires_at, on_expiry = lapse(runner, tool, terms, at)
    if expires_at is not None:
        request |= {"expires_at": expires_at, "on_expiry": on_expiry}
    if found is not None:
        request |= {"point": found[0], "label": found[1].label}
    elif stops and flow is not None:
        request["point"] = flow.point_of(call)
    # It needs no approval, and stops all the same. Whoever lets it go on approves of nothing, and `why` says so.
    if not asks:
        return judgement.evolve(verdict="pend", why="breakpoint", **request)
    if not terms.standing and not handlers_of(
        runner, judgement
    ):  # whoever is to approve looks at it as well: that is one stop
        return judgement.evolve(verdict="pend", **request)
    # A grant may let it through, or a handler is asked at once, in this process. It answers only where each of those who ask has one.
    if not stops:
        return judgement.evolve(verdict="ask", **request)
    return judgement.evolve(verdict="pend", why="breakpoint", asked_by=judgement.asked_by or ("",), **request)


def handlers_of(runner: Runner, asked: Call | Judgement) -> Sequence[Handled]:
    """All handlers that may answer a request for a call. None if one of those who ask has no handler.

    The handler of the tool's agent answers for the tool, and the handler of an agent or graph with a policy answers for
    that policy. So a handler of a nested run never answers for an agent around it.
    """
    if asked.brief is not None and asked.brief.humans_only:
        return []
    # Two policies of one name may be of two agents. If one of them has no handler, nobody has answered for it.
    given: dict[str, list[Handled | None]] = {"": [runner.spec.handler]}
    for rule in runner.policies if asked.asked_by else ():  # of several of one name, each has to have one
        given.setdefault(rule.of, []).append(rule.handler)
    found = [handled for name in asked.asked_by or ("",) for handled in given.get(name, [None])]
    return [] if None in found else [*dict.fromkeys(filter(None, found))]

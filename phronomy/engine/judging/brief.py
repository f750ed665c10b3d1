"""What a human is shown of a call beside its arguments: texts, the decisions that it allows, the conversation.

The async function is the sync one with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from phronomy.approvals.policy import Rule
from phronomy.engine.run import Runner
from phronomy.errors import AsyncRequired
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, plain_object
from phronomy.foundation.quoting import HIDDEN
from phronomy.records.approvers import Approvers
from phronomy.records.calls import Call, Judgement, path_inside
from phronomy.records.chain import decision_on
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import NO_BRIEF, Brief, OnExpiry, Permitted, Reject
from phronomy.records.record import deadline, digest_of
from phronomy.rules.authorization import idempotency_key
from phronomy.stores.log.kept_members import digest_of_text
from phronomy.tools.approval import Review, Shown, TextOfArguments, TitleOfArguments
from phronomy.tools.context import ToolContext
from phronomy.tools.tool import Tool


def briefed(runner: Runner, call: Call, judgement: Judgement, tool: Tool, rules: Sequence[Rule]) -> Judgement:
    """The judgement with what a human is shown beside the arguments. `rules` are those that ask; where nobody is asked, as it is."""
    if judgement.pending_id is None:
        return unasked(judgement, tool)
    reviews = reviews_of(tool, rules)
    brief = brief_of(runner, tool, reviews, judgement.brief or NO_BRIEF)
    if reviews:
        asked = asked_about(runner, call, judgement, tool)
        titles = [text_of(each.title, asked) for each in reviews]
        contexts = [text_of(each.context, asked) for each in reviews]
        brief = told(brief, titles, contexts)
    return judgement if brief == NO_BRIEF else judgement.evolve(brief=brief)


async def abriefed(runner: Runner, call: Call, judgement: Judgement, tool: Tool, rules: Sequence[Rule]) -> Judgement:
    """As `briefed`."""
    if judgement.pending_id is None:
        return unasked(judgement, tool)
    reviews = reviews_of(tool, rules)
    brief = brief_of(runner, tool, reviews, judgement.brief or NO_BRIEF)
    if reviews:
        asked = asked_about(runner, call, judgement, tool)
        titles = [await atext_of(each.title, asked) for each in reviews]
        contexts = [await atext_of(each.context, asked) for each in reviews]
        brief = told(brief, titles, contexts)
    return judgement if brief == NO_BRIEF else judgement.evolve(brief=brief)


def unasked(judgement: Judgement, tool: Tool) -> Judgement:
    """The judgement of a call about which nobody is asked now: if it fails, a human may be, and what they may answer holds then too."""
    if judgement.verdict != "run" or tool.review is None:
        return judgement
    # No function is called for it: of most such calls, nobody will ever be asked.
    texts = {name: text for name in ("title", "context") if isinstance(text := getattr(tool.review, name), str)}
    brief = NO_BRIEF.evolve(answers=tool.review.answers, **texts)
    return judgement if brief == NO_BRIEF else judgement.evolve(brief=brief)


@dataclass(frozen=True, slots=True)
class Asked:
    """The material of texts: a copy of the arguments for each, typed or as plain JSON, and the context of the call."""

    shown: Callable[[], Mapping[str, object]]
    plain: Callable[[], Mapping[str, object]]
    context: ToolContext[object]


def asked_about(runner: Runner, call: Call, judgement: Judgement, tool: Tool) -> Asked:
    """What functions are told of a call. What the tool redacts is not in it: a title may go to a phone, or into a list."""
    text = judgement.json_text("args")
    return Asked(
        lambda: tool.shown_redacted(tool.bind(text)),
        lambda: tool.redacted(plain_object(text)),
        tool_context(runner, call, tool, judgement.digest),
    )


def text_of(given: str | TitleOfArguments | TextOfArguments | None, asked: Asked) -> str | None:
    """One text, if there is one."""
    if isinstance(given, TitleOfArguments):
        return given.filled(asked.plain())
    return given.text(asked.shown, asked.context) if isinstance(given, TextOfArguments) else given


async def atext_of(given: str | TitleOfArguments | TextOfArguments | None, asked: Asked) -> str | None:
    """As `text_of`."""
    if isinstance(given, TitleOfArguments):
        return given.filled(asked.plain())
    return await given.atext(asked.shown, asked.context) if isinstance(given, TextOfArguments) else given


def reviews_of(tool: Tool, rules: Iterable[Rule]) -> list[Review]:
    """What those who ask want to be shown: the tool first, whoever asks, since the call is its own; then the rules that ask."""
    return [each for each in (tool.review, *(rule.review for rule in rules)) if each is not None]


def brief_of(runner: Runner, tool: Tool, reviews: Sequence[Review], terms: Brief) -> Brief:
    """What is shown beside the texts, with the terms of those who ask."""
    conversation = runner.spec.conversation
    said = conversation.shown_for_review(runner.state, runner.home) if conversation is not None else ()
    if runner.hides_input:
        said = tuple(each.evolve(text=HIDDEN) if each.role == "user" else each for each in said)
    return terms.evolve(
        answers=permitted(reviews),
        description_hash=tool.description_hash or None,
        returns_hash=digest_of_text(tool.result_schema_text) if tool.result_schema_text is not None else None,
        conversation=said,
    )


def counted(
    answer: bool | Reject, levels: Sequence[Review], shown: Shown, context: ToolContext[object]
) -> tuple[bool | Reject, Sequence[Review]]:
    """The answer, and the levels that ask, each with the number of people that these arguments need; `Reject` where one has none."""
    if answer is False or isinstance(answer, Reject):
        return answer, levels
    found: list[Review] = []
    for each in levels:
        level = each.counted(shown, context)
        if isinstance(level, Reject):
            return level, ()
        found.append(level)
    return answer, found


def terms_of(levels: Sequence[Review], asking: int, state: Checkpoint) -> Brief:
    """The terms of the levels that ask: who decides, until when, and if handlers or grants may. `asking` is the number of all that ask.

    `state` says who has written in the conversation.
    """
    policies = [each.policy for each in levels if each.policy is not None]
    if not policies:
        return NO_BRIEF
    expires = [each.expires for each in levels if each.expires is not None]
    on_expiry = [each.on_expiry for each in levels if each.on_expiry is not None]
    return NO_BRIEF.evolve(
        approvers=tuple(with_writers(each.people.approvers, state) for each in levels if each.people.governs),
        policy=digest_of(*policies),
        expires=min(expires, default=None),
        on_expiry=max(on_expiry, key=_STRICT.index, default=None),
        remind=tuple(sorted({after for each in levels for after in each.remind})),
        humans_only=not all(each.handler for each in levels),
        # One who asks and says nothing of grants asks people.
        standing=len(levels) == asking and all(each.standing for each in levels),
    )


def briefed_anew(brief: Brief, tool: Tool, args: JsonText, state: Checkpoint) -> Brief | None:
    """The brief of a waiting node, with its texts and numbers of people, by other arguments than those that it was judged by.

    None where only a judgement can say that: a function is async, or gives no number.
    """
    review = tool.review
    if review is None:
        return brief
    values = tool.bind(args)
    shown = partial(tool.shown_redacted, values)
    try:
        texts = {
            name: given.text(shown, None) if isinstance(given, TextOfArguments) else getattr(brief, name)
            for name, given in (("title", review.title), ("context", review.context))
        }
    except AsyncRequired:
        return None
    level = review.counted(partial(tool.shown, values), None)
    if isinstance(level, Reject):
        return None
    asked = tuple(
        level.people.approvers if review.people.is_of(each.evolve(authors=(), known=())) else each
        for each in brief.approvers
    )
    return brief.evolve(**texts, approvers=tuple(with_writers(each, state) for each in asked))


def with_writers(level: Approvers, state: Checkpoint) -> Approvers:
    """The requirement of a level, with the writers of the conversation if it keeps them from approving."""
    wrote = {"authors": state.requesters, "known": state.known}
    return level.evolve(**wrote) if level.not_requester and (state.requesters or state.known) else level


_STRICT: Final[tuple[OnExpiry, ...]] = ("stay", "reject", "cancel")
"""What follows if nobody decides in time; of several, the last of these counts."""


def lapse(runner: Runner, tool: Tool | None, brief: Brief | None, at: datetime) -> tuple[datetime | None, OnExpiry]:
    """When a request that is asked now expires, and what follows: by the tool and the agent, or sooner by one of those who ask."""
    timeout, on_expiry = runner.spec.expiry(tool) if tool is not None else (None, "reject")
    if brief is not None and brief.expires is not None:
        timeout = brief.expires if timeout is None else min(timeout, brief.expires)
    if brief is not None and brief.on_expiry is not None:
        on_expiry = brief.on_expiry
    return deadline(at, timeout), on_expiry


def permitted(reviews: Iterable[Review]) -> tuple[Permitted, ...]:
    """The decisions that all of them allow; nothing in it means that they are not limited."""
    limits = [each.answers for each in reviews if each.answers]
    if not limits:
        return ()
    both: tuple[Permitted, ...] = tuple(kind for kind in limits[0] if all(kind in each for each in limits))
    if both:
        return both
    # Where one level allows only what another forbids, nothing can be let through. That it does not run is always an answer.
    return ("reject",)


def told(brief: Brief, titles: Iterable[str | None], contexts: Iterable[str | None]) -> Brief:
    """The brief with its texts: the first title, and every context."""
    title = next(_given(titles), None)
    context = "\n\n".join(_given(contexts))
    return brief.evolve(title=title, context=context or None)


def _given(texts: Iterable[str | None]) -> Iterator[str]:
    return (text for text in texts if text is not None)


def tool_context(runner: Runner, call: Call, tool: Tool, digest: str | None = None) -> ToolContext[object]:
    """What a tool, or its gate, may know of the call."""
    state = runner.state
    return ToolContext(
        run_id=state.run_id,
        thread_id=state.thread_id,
        call_id=call.call_id,
        pending_id=call.approved,
        decision=decision_on(state, call.approved) if call.approved is not None else None,
        rejections=tuple([each for each in state.decisions if each.pending_id in call.rejected]),
        tool_name=tool.name,
        idempotency_key=idempotency_key(state, call, digest),
        attempt=call.attempt,
        deps=runner.deps,
        requester=state.requester,
        scopes=runner.scopes,
        messages=runner.messages,
        usage=state.usage,
        # Of the tenant of the run. A tool that keeps something must not be able to mean another.
        _store=runner.ledger.store,
        # Made here and not where the body runs, so that a call which is cancelled before its body is entered finds that out as
        # well.
        _cancel=runner.shared.signal(path_inside(state.path, call.id)),
        _state=state.__dict__["state"],
        _facts=runner.facts_text,
    )

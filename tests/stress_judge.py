"""The judge of the stress: compares what workers noted, line for line, with what the store says in the end.

It knows nothing of logs, claims or rows. What was done is in the notes; of the store it asks who is said to have decided what (the
audit), where the runs are, and what their conversations say.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stress_worker import GATED, LEFT, REPEATABLE, World

from phronomy.stores.base import Store
from phronomy.stores.rows import OPEN


@dataclass(frozen=True)
class Violation:
    """What did not hold, and all that is known of the run in which it did not."""

    law: str
    told: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.law}: {self.told}", *(f"    {line}" for line in self.lines)])


@dataclass
class Slot:
    """One call that a model made: what is noted of it, in order."""

    id: str
    enters: list[dict[str, Any]] = field(default_factory=list)
    leaves: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)  # those that count, by the audit

    def counted(self, why: str, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.decisions if each["why"] == why and each["kind"] in kinds]


class Judge:
    def __init__(self, world: World, store: Store) -> None:
        self.lines = [{**line, "n": n} for n, line in enumerate(world.notes.read())]
        self.lease = world.lease
        self.store = store
        self.audit = [*store.audit()]
        self.found: list[Violation] = []
        self.branches, self.heads = [], {}
        self.counts: Counter[str] = Counter()
        self.slots: dict[str, Slot] = {}
        self.tolerated: set[int] = set()
        self.by_what: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.lines:
            self.by_what[line["what"]].append(line)
        self.told = {line["token"]: line for line in self.lines if line["what"] in ("decided", "invoked", "cancelled")}
        for branch in store.branches():
            try:
                self.heads[branch.id] = store.head(branch.id)[1]
                self.branches.append(branch)
            except Exception as error:
                self.fail("every run can be read", f"{branch}: {error!r}", branch.run_id)
        self._index()

    def _index(self) -> None:
        counted = {(record.by.id, record.pending_id) for record in self.audit if record.by is not None}
        self._tolerate()
        for line in self.lines:
            match line["what"]:
                case "enter" if line["n"] not in self.tolerated:
                    self.slot(line["slot"]).enters.append(line)
                case "leave":
                    self.slot(line["slot"]).leaves.append(line)
                case "decide":
                    for item in line["items"]:
                        if (line["token"], item["pending"]) in counted:
                            slot = self.slot(item["slot"])
                            slot.decisions.append({**item, "token": line["token"], "n": line["n"], "run": line["run"]})

    def slot(self, id: str) -> Slot:
        return self.slots.setdefault(id, Slot(id))

    def fail(self, law: str, told: str, *about: str) -> None:
        """Something did not hold. `about` are slots, runs or tokens: the tags of their runs say which lines belong to it."""
        tags = {each.split("/")[0].split("|")[0] for each in about if each}
        invoked = [line for line in self.by_what["invoked"] if "status" in line]
        runs = {each for each in about if each} | {line["run"] for line in invoked if line["token"] in tags}
        runs |= {line["run"] for line in self.lines if line.get("run") and line.get("slot", "").split("/")[0] in tags}
        tags |= {line["token"] for line in invoked if line["run"] in runs}
        self.found.append(Violation(law, told, tuple(self._transcript(runs, tags))))

    def _transcript(self, runs: set[str], tags: set[str]) -> Iterator[str]:
        tokens = tags | {line["token"] for line in self.by_what["decide"] if line["run"] in runs}

        def of(line: dict[str, Any]) -> bool:
            names = (
                line.get("run"),
                line.get("token"),
                *(line.get(each, "").split("/")[0] for each in ("tag", "slot")),
            )
            return not {*names}.isdisjoint(runs | tags | tokens)

        mine = [line["n"] for line in self.lines if of(line)]
        for line in self.lines[mine[0] : mine[-1] + 1] if mine else ():
            if of(line) or line["what"] in ("kill", "stop", "prune", "raised"):
                yield json.dumps(line)
        yield from (f"audit {record.model_dump_json()}" for record in self.audit if record.run_id in runs)
        for branch in self.branches:
            if branch.run_id in runs:
                yield f"branch {branch}"
                head = self.heads[branch.id]
                yield from (f"  call {each!r}" for each in head.calls)
                for said in head.messages:
                    yield f"  {said.role} {said.settlement or ''}: {said.text} {[each.name for each in said.tool_calls]}"

    # The laws

    def judge(self) -> list[Violation]:
        """All that did not hold."""
        self.nothing_else_is_raised()
        self.every_run_rests()
        self.a_decision_counts_once()
        for slot in self.slots.values():
            self.only_what_was_approved(slot)
            self.not_twice(slot)
            self.decisions_are_carried_out(slot)
        self.what_is_left_for_a_worker_is_found()
        self.conversations_say_what_was_done()
        self.nothing_is_lost()
        self.counts.update(line["what"] for line in self.lines)
        self.counts.update(
            f"told {line['error']}" for line in self.lines if "error" in line and line["what"] != "raised"
        )
        self.counts["audited"] = len(self.audit)
        self.counts["asked again as outcome_unknown"] = len(
            {
                item["pending"]
                for line in self.by_what["decide"]
                for item in line["items"]
                if item["why"] == "outcome_unknown"
            }
        )
        return self.found

    def nothing_else_is_raised(self) -> None:
        for line in self.by_what["raised"]:
            self.fail(
                "only documented errors",
                f"{line['act']} raised {line['error']}\n{line['trace']}",
                line.get("token", ""),
            )

    def every_run_rests(self) -> None:
        for branch in self.branches:
            if branch.status in OPEN or branch.owner is not None:
                self.fail(
                    "every run comes to rest",
                    f"run {branch.run_id} is {branch.status}, owner {branch.owner}",
                    branch.run_id,
                )
        for row in self.store.pending():
            self.fail("every run comes to rest", f"{row.approval.id} still waits", row.run_id)

    def a_decision_counts_once(self) -> None:
        """Of all that decide one request one is told so, and that is who is in the audit; all others have left nothing there."""
        lines: dict[str, list[Any]] = defaultdict(list)
        tokens: dict[str, set[str]] = defaultdict(set)
        for record in self.audit:
            if record.pending_id is not None and record.by is not None:
                lines[record.pending_id].append(record)
                tokens[record.by.id].add(record.pending_id)
        for pending, records in lines.items():
            if len(records) != 1:
                self.fail("one decision counts", f"{pending} has {len(records)} lines in the audit", records[0].run_id)
        attempts = {line["token"]: line for line in self.by_what["decide"]}
        for record in self.audit:
            if record.pending_id is None or record.by is None:
                continue
            items = attempts.get(record.by.id, {"items": ()})["items"]
            item = next((each for each in items if each["pending"] == record.pending_id), None)
            if item is None or item["kind"] != record.kind or record.edited != (item["note"] is not None):
                self.fail("the audit says what was decided", f"{record!r} is not what was noted: {item}", record.run_id)
        for token, line in attempts.items():
            told, mine = self.told.get(token), {item["pending"] for item in line["items"]}
            lost = told and told.get("error")
            if told is None or lost in ("LeaseLost", "NotAuthorized", LEFT):
                continue  # it may count: what came next was lost, or stopped by the gate, or not waited for
            if lost and tokens[token]:
                self.fail(
                    "who lost left nothing",
                    f"{token} was told {lost}, and {tokens[token]} are in the audit",
                    line["run"],
                )
            if not lost and tokens[token] != mine:
                self.fail(
                    "who won is in the audit",
                    f"{token} was told it decided {mine}; the audit has {tokens[token]}",
                    line["run"],
                )
            if lost == "CheckpointAlreadyResumed" and told.get("winner") and told["pending"] in lines:
                by = lines[told["pending"]][0].by
                if by.id != told["winner"]:
                    self.fail(
                        "who lost hears of the winner",
                        f"{token} was told {told['winner']}, the audit has {by.id}",
                        line["run"],
                    )

    def only_what_was_approved(self, slot: Slot) -> None:
        """A gated body is entered after an approval, with what was approved; a rejected one never; one that asks, when answered."""
        for enter in slot.enters:
            if enter["tool"] in GATED or (enter["strict"] and enter["tool"] == "plain"):
                before = [each for each in slot.decisions if each["n"] < enter["n"] and each["kind"] == "approve"]
                asked = [each for each in before if each["why"] == "approval"]
                if not before or (not asked and enter["tool"] in GATED):
                    self.fail("nothing runs unapproved", f"{slot.id} was entered", slot.id, enter["run"])
                elif asked and enter["note"] != (asked[-1]["note"] or ""):
                    self.fail(
                        "what was approved is what runs", f"{slot.id} ran with {enter['note']!r}", slot.id, enter["run"]
                    )
            answered = [each for each in slot.counted("question", "approve", "respond") if each["n"] < enter["n"]]
            if enter["tool"] == "asks" and not answered:
                self.fail("a body that asks waits", f"{slot.id} went on unanswered", slot.id, enter["run"])
            for decision in slot.decisions:
                instead = decision["kind"] == "reject" or (
                    decision["kind"] == "respond" and decision["why"] != "question"
                )
                if instead and (decision["why"] != "outcome_unknown" or decision["n"] < enter["n"]):
                    self.fail(
                        "a rejected call never runs", f"{slot.id} was entered, and {decision}", slot.id, enter["run"]
                    )

    def not_twice(self, slot: Slot) -> None:
        if len({enter["key"] for enter in slot.enters}) > 1:
            self.fail("one call has one key", f"{slot.id} has several", slot.id)
        for first, second in zip(slot.enters, slot.enters[1:], strict=False):
            if first["tool"] in REPEATABLE:
                continue
            asked = [
                each for each in slot.counted("outcome_unknown", "approve") if first["n"] < each["n"] < second["n"]
            ]
            if not asked:
                self.fail("nothing is done twice by itself", f"{slot.id} was entered again", slot.id, second["run"])

    def decisions_are_carried_out(self, slot: Slot) -> None:
        for decision in slot.counted("approval", "approve") + slot.counted("outcome_unknown", "approve"):
            again = ("outcome_unknown", "question")  # it was begun, and nobody knows how far it came; or it has asked
            later = [each for each in slot.decisions if each["why"] in again and each["n"] > decision["n"]]
            entered = [each for each in slot.enters if each["n"] > decision["n"]]
            if not entered and not later and not self.was_stopped(decision["run"]):
                self.fail(
                    "every decision is carried out", f"{slot.id} never ran, though {decision}", slot.id, decision["run"]
                )

    def what_is_left_for_a_worker_is_found(self) -> None:
        """A decision that somebody was told is taken needs nobody who resumes the run: that, or `recover_all`, carries it out."""
        barred = {
            line["run"]
            for line in (*self.by_what["recovered"], *self.by_what["resumed"])
            if line.get("error") == "NotAuthorized"
        }
        for line in self.by_what["left"]:
            for slot in self.slots.values():
                for decision in slot.counted("approval", "approve"):
                    told = self.told.get(decision["token"])
                    mine = decision["run"] == line["run"] not in barred
                    if not mine or told is None or "error" in told or told["n"] > line["n"]:
                        continue
                    since = [
                        each["n"] for each in (*slot.enters, *slot.decisions) if decision["n"] < each["n"] < line["n"]
                    ]
                    if not since and not self.was_stopped(decision["run"]):
                        text = f"{slot.id} had not run when all had been recovered, though {decision}"
                        self.fail("what is left for a worker is found", text, slot.id, decision["run"])

    def was_stopped(self, run: str) -> bool:
        """Whether somebody cancelled the run, superseded it, or took it away unfinished."""
        ended = any(record.run_id == run and record.kind in ("cancel", "supersede") for record in self.audit)
        return ended or any(line["run"] == run and line["force"] for line in self.by_what["delete"])

    def conversations_say_what_was_done(self) -> None:
        for branch in self.branches:
            head = self.heads[branch.id]
            names: dict[str, Any] = {}
            answered: set[str] = set()
            for message in head.messages:
                names |= {each.id: each for each in message.tool_calls}
                if message.role == "tool":
                    if message.tool_call_id in answered or message.tool_call_id not in names:
                        self.fail("each call has one result", f"{message.tool_call_id}", branch.run_id)
                        continue
                    answered.add(message.tool_call_id)
                    self.one_result(branch, names[message.tool_call_id], message)
            if answered != {*names}:
                self.fail("each call has one result", f"{ {*names} - answered } have none", branch.run_id)
            tag = next(message.text for message in reversed(head.messages) if message.role == "user").split("|")[0]
            if branch.status == "completed" and head.output != f"done {tag}":
                self.fail("a run ends as it should", f"its output is {head.output!r}", branch.run_id)

    def one_result(self, branch: Any, made: Any, message: Any) -> None:
        asked = json.loads(made.arguments)
        if "input" in asked:
            if message.settlement == "completed" and message.text != f"done {asked['input'].split('|')[0]}":
                self.fail("results are what was returned", f"{asked} came to {message.text!r}", branch.run_id)
            return
        slot = self.slot(asked["slot"])
        right = {
            "completed": lambda: self.says(slot, message.text, {each["text"] for each in slot.leaves}),
            "responded": lambda: self.says(
                slot, message.text, {each["content"] for each in slot.decisions if each["content"]}
            ),
            "rejected": lambda: any(each["kind"] == "reject" for each in slot.decisions),
            "cancelled": lambda: any(record.kind == "cancel" for record in self.audit),
            "superseded": lambda: any(record.kind == "supersede" for record in self.audit),
        }.get(message.settlement, lambda: False)
        if not right():
            self.fail(
                "results are what was returned",
                f"{slot.id} is {message.settlement}: {message.text!r}",
                slot.id,
                branch.run_id,
            )

    @staticmethod
    def says(slot: Slot, told: str, texts: set[str]) -> bool:
        """Whether this is one of the texts; where the arguments were edited, the model is told so first."""
        edited = any(each["note"] and each["note"] in told for each in slot.decisions)
        return told in texts or (edited and any(told.endswith(text) for text in texts))

    def nothing_is_lost(self) -> None:
        """Whoever was told of a run finds it, unless it was taken away; a thread goes on from all that ended on it."""
        known = {branch.run_id for branch in self.branches}
        gone = {line["run"] for line in self.by_what["delete"]}
        prunes = [line["n"] for line in self.by_what["prune"]]
        begun = {line["token"]: line["n"] for line in self.by_what["invoke"]}
        for line in self.by_what["invoked"]:
            run = line.get("run") if "status" in line else None
            if run and run not in known and run not in gone and not any(n > begun[line["token"]] for n in prunes):
                self.fail("nothing is lost", f"run {run} is not there", run)
        threads = {line["token"]: line["thread"] for line in self.by_what["invoke"] if line["thread"] is not None}
        ended: dict[str, int] = {}
        for line in self.lines:
            if line.get("status") == "completed" and line.get("run") in known:
                ended.setdefault(line["run"], line["n"])
        said = {
            branch.run_id: [m.text.split("|")[0] for m in self.heads[branch.id].messages if m.role == "user"]
            for branch in self.branches
        }
        for run, tags in said.items():
            for other, n in ended.items():
                tag = said[other][-1]
                same = tag in threads and threads[tag] == threads.get(tags[-1])
                if same and n < begun[tags[-1]] and tag not in tags:
                    self.fail("a thread goes on from its past", f"{run} ({tags}) does not know of {tag}", run, other)

    # Leases

    def _tolerate(self) -> None:
        """No body is entered by a worker after another was given the run, but for the instant that the guarantees name.

        The worker looks just before it enters. Where it was stopped after its last write had come back, it may have been between
        that look and the first line of the body: that is the instant.
        """
        stops = [(line["pid"], line["begins"], line["ends"]) for line in self.by_what["stop"]]
        entered = {(line["slot"], line["begun"]): line for line in self.by_what["enter"]}
        for line in self.by_what["holder"]:
            enter = entered[line["slot"], line["begun"]]
            self.counts["entries looked at"] += 1
            if (line["owner"] or "").split(":")[1:2] == [str(line["pid"])]:
                continue
            begun, ends = enter["wrote"], line["at"]
            frozen = any(pid == line["pid"] and at < ends and until > begun for pid, at, until in stops)
            if frozen or ends - begun > 0.9 * self.lease:
                self.counts["entered in the tolerated instant"] += 1
                self.tolerated.add(enter["n"])
                continue
            told = f"{line['slot']} was entered by {line['pid']}, and the run is {line['owner']}'s"
            self.fail("a worker that lost its lease enters no tool", told, line["slot"], line["run"])

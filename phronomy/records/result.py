"""What a run has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Message, Usage

Output = TypeVar("Output", default=str, covariant=True)  # noqa: PLC0105  # it is in the signatures that users read

ResultStatus: TypeAlias = Literal["completed", "suspended", "rejected", "cancelled", "superseded", "skipped", "running"]
"""How a run stands. `running`: it was left between two boundaries by `step`, or another worker carries it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[Output]):
    """What `invoke` and `resume` return.

    `output` is the final answer, None unless `status` is `completed`. `checkpoint` is the last boundary, always: what to resume
    where the run is suspended, and where its thread goes on from when it has ended.
    """

    status: ResultStatus
    output: Output | None = field(default=None, repr=False)
    checkpoint: Checkpoint

    @property
    def suspended(self) -> bool:
        """Whether the run waits for a human: `checkpoint.pending` says for what."""
        return self.status == "suspended"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation so far."""
        return self.checkpoint.messages

    @property
    def usage(self) -> Usage:
        """What the run has cost so far, over all its resumes."""
        return self.checkpoint.usage

    @property
    def run_id(self) -> str:
        """The id of the run, the same through every resume and fork."""
        return self.checkpoint.run_id

    @property
    def thread_id(self) -> str | None:
        """The thread that the run belongs to, if it was given one."""
        return self.checkpoint.thread_id

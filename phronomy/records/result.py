"""What a run has come to."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.spelling import no_attribute
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Message, Usage

Output = TypeVar("Output", default=str, covariant=True)  # noqa: PLC0105  # it is in the signatures that users read

ResultStatus: TypeAlias = Literal["completed", "suspended", "rejected", "cancelled", "superseded", "skipped", "running"]
"""The status of a run in a result.

`running`: `step` has left it between two boundaries, or another worker continues it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[Output]):
    """The result of `invoke`, `resume` and the other methods that drive a run.

    `output` is the final answer; it is None unless `status` is `completed`. `checkpoint` is the last boundary, and
    there is always one: resume it if the run is suspended. If the run has ended, the next run of the thread starts from
    it.
    """

    status: ResultStatus
    output: Output | None = field(default=None, repr=False)
    checkpoint: Checkpoint

    @property
    def suspended(self) -> bool:
        """Whether the run waits for a decision. `checkpoint.pending` lists the requests."""
        return self.status == "suspended"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation so far."""
        return self.checkpoint.messages

    @property
    def finish_reason(self) -> str | None:
        """Why the last reply of the model is not whole, such as `"length"`; None if it is whole, or there is none."""
        replies = (message for message in reversed(self.checkpoint.messages) if message.role == "assistant")
        return next((message.finish_reason for message in replies), None)

    @property
    def usage(self) -> Usage:
        """The usage of the run so far, over all its resumes."""
        return self.checkpoint.usage

    @property
    def run_id(self) -> str:
        """The id of the run. Resumes and forks do not change it."""
        return self.checkpoint.run_id

    @property
    def thread_id(self) -> str | None:
        """The thread of the run, or None if the run has no thread."""
        return self.checkpoint.thread_id

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __getattr__(self, name: str) -> object:
            raise no_attribute(self, name)

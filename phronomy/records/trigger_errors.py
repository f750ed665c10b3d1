"""The errors of triggers: an event that cannot be sent, and a trigger that is not waited for any more."""

from phronomy.errors import CheckpointAlreadyResumed, DecisionError, NotAnApprover, StoreError


class TriggerFired(CheckpointAlreadyResumed):
    """The run has waited for this event, and it has arrived before. Nothing was sent; `decision` says who sent the first one."""


class TriggerSuperseded(CheckpointAlreadyResumed):
    """The wait of this trigger is over without it: another trigger fired first, or somebody ended the wait. Nothing was recorded."""


class NotASender(NotAnApprover):
    """This person or program may not send the event: the trigger names other senders. The refusal is in the audit trail."""


class TooManyEvents(StoreError):
    """The run keeps as many events as it can that nothing waits for yet, or events that are as large together. Nothing was sent."""


class NotWaiting(DecisionError):
    """The run waits for no such event, and the event was not kept: the run has ended, or the sender asked for that."""

    def __init__(self, message: str, *, run_id: str, event: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.event = event

"""`ModelSettings`: what every provider is asked with. `formats/` says how each protocol writes it."""

from typing import Annotated, Final

from pydantic import Field

from phronomy.errors import InvalidField
from phronomy.foundation.json_text import JsonError, canonical
from phronomy.records.record import EMPTY, JsonObject, Record, Text


class ModelSettings(Record):
    """The settings of a model call. For a setting that is None, the provider decides.

    `tool_choice` is `"auto"`, `"required"`, `"none"`, or the name of the one tool to call. `timeout` is the number of
    seconds for one attempt, from the connection to the end of the answer. `extra` has provider options under their own
    names, such as `reasoning_effort`. If an option is also in `extra`, the one outside of `extra` counts.

    `accept_incomplete` is not sent to the provider: with True, a text that was cut off, for example at `max_tokens`, is
    taken as the answer. `finish_reason` of its message says why it ended. Otherwise it is a `ReplyIncomplete`.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    tool_choice: Annotated[Text, Field(min_length=1)] | None = None
    parallel_tool_calls: bool | None = None
    stop: Annotated[tuple[Text, ...], Field(strict=False)] | None = None
    seed: int | None = None
    timeout: float | None = Field(default=None, gt=0)
    accept_incomplete: bool | None = None
    extra: JsonObject = Field(default=EMPTY, repr=False)  # may hold headers, so it stays out of reprs

    def merged(self, other: "ModelSettings | None") -> "ModelSettings":
        """These settings, overridden by the settings in `other`. The same holds for each option in `extra`."""
        if other is None or other == _UNSET:
            return self
        if self == _UNSET:
            return other
        known = {name: value for name, value in vars(other).items() if value is not None}
        try:
            extra = canonical({**self.extra, **other.extra})
        except JsonError as error:  # each of the two was within the limit
            raise InvalidField(f"ModelSettings: extra: {error}") from None
        return self.evolve(**{**known, "extra": extra})


_UNSET: Final = ModelSettings.model_construct()

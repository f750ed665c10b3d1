"""`ResponsesModel`: any endpoint that speaks OpenAI's Responses API, without a provider's library.

Nothing is kept at the provider: each request holds the whole conversation, and what the model thought comes back encrypted and goes
along in the record. So a run can be resumed anywhere, by whoever has its checkpoint.
The protocol: https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from phronomy.models.formats.response_events import ResponseAssembler
from phronomy.models.formats.responses import read_response, request_conversation, request_options
from phronomy.models.http.direct import DirectModel, WireFormat


class ResponsesModel(DirectModel):
    """A model reached directly, at any endpoint that speaks the Responses API: its reasoning goes along from turn to turn.

    The arguments are those of `ChatCompletionsModel`. Requests say `store: false`, and ask for the reasoning in encrypted form; it is
    kept in the messages, with all other items of a response, and goes back where it stood. A model that does not reason refuses to be
    asked for it: `ModelSettings(extra={"include": None})`.

    Of the settings, `stop` and `seed` are not in this API: with them, a call raises `ConfigurationError`. In `extra`,
    `reasoning_effort` and `response_format` are as for chat completions, and any other option goes by its own name. `tools` in it are
    the provider's own, which run there, past all gates.
    """

    _FORMAT = WireFormat(
        path="/responses",
        options=request_options,
        conversation=request_conversation,
        read=read_response,
        assembler=ResponseAssembler,
    )

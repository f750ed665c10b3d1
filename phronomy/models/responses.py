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
    """A model at any endpoint that speaks the Responses API. Its reasoning is kept from turn to turn.

    The arguments are those of `ChatCompletionsModel`. Each request says `store: false`, and asks for the reasoning in
    encrypted form. The messages keep the reasoning with all other items of a response, and later requests send them
    again in the same place. A model that does not reason refuses such a request: give it
    `ModelSettings(extra={"include": None})`.

    The API has no `stop` and no `seed`: with one of them, a call raises `ConfigurationError`. `reasoning_effort` and
    `response_format` in `extra` are as for chat completions. Any other option is sent under its own name. `tools` in
    `extra` are the provider's own tools; the provider runs them, so no approval is asked for.
    """

    _FORMAT = WireFormat(
        path="/responses",
        options=request_options,
        conversation=request_conversation,
        read=read_response,
        assembler=ResponseAssembler,
    )

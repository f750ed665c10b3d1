"""External tools whose parameters are a JSON Schema or a pydantic model: a page declares them, say, or another service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from pydantic import BaseModel
from typing_extensions import Unpack

from phronomy.errors import ToolDefinitionError
from phronomy.foundation.json_text import JsonDict
from phronomy.foundation.spelling import check_options
from phronomy.records.decisions import OnExpiry
from phronomy.tools import external_results
from phronomy.tools.arguments import Arguments
from phronomy.tools.json_schema.arguments import SchemaArguments
from phronomy.tools.json_schema.bounded import BoundedSchema
from phronomy.tools.tool import Tool


class ExternalToolOptions(TypedDict, total=False):
    """The options of `ExternalTool`, besides its declaration.

    The attributes of `Tool` with the same names describe them.
    """

    redact: frozenset[str]
    max_result_size: int
    source: str
    approval_timeout: float | None
    on_expiry: OnExpiry | None
    risk: str | None
    return_direct: bool


class ExternalTool(Tool):
    """A tool that is carried out elsewhere. Each call waits, and you give its result with `Respond(content=...)`.

    `parameters` is a JSON Schema or a pydantic model (None: no parameters). Arguments are validated by the schema, and
    its defaults are filled in. `returns` is the form of a result: a JSON Schema as a mapping, or a type (None: any JSON
    value). To declare an external tool by a function, use `@tool(external=True)`. Raises `ToolDefinitionError`.
    """

    external = True

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        parameters: Mapping[str, object] | type[BaseModel] | None = None,
        returns: object = None,
        **options: Unpack[ExternalToolOptions],
    ) -> None:
        check_options("an external tool", options, ExternalToolOptions.__annotations__, ToolDefinitionError)
        self.name = name
        self.description = description
        for option, value in options.items():
            setattr(self, option, value)
        self._given = parameters
        self._declared = returns
        super().__init__()

    def execute(self) -> object:
        """Never runs the tool, because the tool is carried out elsewhere. Raises `ConfigurationError`."""
        raise external_results.not_here(self.name)

    def _default_name(self) -> str:
        return ""  # that of the class says nothing

    def _documentation(self, body: Callable[..., object]) -> tuple[str, dict[str, str]]:
        return "", {}

    def _signature(self, body: Callable[..., object], told: dict[str, str]) -> tuple[Arguments, str | None]:
        given: object = self._given if self._given is not None else {"type": "object", "properties": {}}
        if isinstance(given, type) and issubclass(given, BaseModel):
            given = given.model_json_schema()
        if not isinstance(given, Mapping):
            raise ToolDefinitionError(
                f"tool {self.name}: parameters are a JSON Schema as a mapping, or a pydantic model"
            )
        return SchemaArguments(self.name, dict(given)), None

    def _result_schema(self, body: Callable[..., object]) -> JsonDict | None:
        declared = self._declared
        if isinstance(declared, Mapping):
            try:
                return BoundedSchema(dict(declared)).root
            except Exception as error:
                raise ToolDefinitionError(
                    f"tool {self.name}: the JSON Schema of its result cannot be used ({type(error).__name__})"
                ) from None
        return None if declared is None else external_results.schema_of(self.name, declared)

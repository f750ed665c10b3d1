"""The points of a run at which a breakpoint can stop it."""

from typing import Literal

Point = Literal[
    "pre_input_guardrails",
    "pre_agent_run",
    "pre_model_call",
    "pre_tool_call",
    "post_tool_call",
    "pre_node",
    "post_node",
    "pre_handoff",
    "pre_pattern_step",
    "pre_output_guardrails",
    "post_run",
]
"""The points of a run at which a breakpoint can stop."""

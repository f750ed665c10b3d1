"""Graphs: nodes that share a state of channels, with a checkpoint after each wave of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.graph.flow.graph import Graph, GraphOptions, NodeOptions, StateGraph
from phronomy.graph.flow.stops import GraphStop, StopItem
from phronomy.graph.signals import END, START, Abort, Continue, Pause, Replan, Send
from phronomy.graph.state.channels import add, append, merge, replace
from phronomy.graph.state.registry import register_type
from phronomy.graph.state.streams import register_concat
from phronomy.stops.interrupts import interrupt

__all__ = [
    "END",
    "START",
    "Abort",
    "Continue",
    "Graph",
    "GraphOptions",
    "GraphStop",
    "NodeOptions",
    "Pause",
    "Replan",
    "Send",
    "StateGraph",
    "StopItem",
    "add",
    "append",
    "interrupt",
    "merge",
    "register_concat",
    "register_type",
    "replace",
]

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        raise lazy_names.unknown(__name__, name)

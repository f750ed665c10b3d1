"""Drawings: the checkpoints of a run with its forks, and the nodes of a graph, as Mermaid text or as SVG."""

from __future__ import annotations

from phronomy.observability.drawings.drawing import flow_mermaid, flow_svg, tree_mermaid, tree_svg

__all__ = ["flow_mermaid", "flow_svg", "tree_mermaid", "tree_svg"]

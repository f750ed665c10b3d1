"""Drawings: the version tree of a run, and the shape of a graph, as Mermaid text or as SVG."""

from __future__ import annotations

from phronomy.observability.drawings.drawing import flow_mermaid, flow_svg, tree_mermaid, tree_svg

__all__ = ["flow_mermaid", "flow_svg", "tree_mermaid", "tree_svg"]

"""Drawings, as Mermaid text and as SVG."""

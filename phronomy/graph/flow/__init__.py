"""The flow of a graph: nodes, edges, and the waves in which they run."""

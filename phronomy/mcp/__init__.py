"""Tools of MCP servers, over stdio and streamable HTTP: gated, validated and recorded as any other tool is."""

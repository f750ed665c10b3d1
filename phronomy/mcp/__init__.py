"""Tools of MCP servers, over stdio and streamable HTTP. They are approved, validated and recorded like all tools."""

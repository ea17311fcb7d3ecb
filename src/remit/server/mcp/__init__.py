"""The MCP API: six tools by which MCP clients delegate, on stdin and stdout or over HTTP. Needs the extra `remit[mcp]`."""

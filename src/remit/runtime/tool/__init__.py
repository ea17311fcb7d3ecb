"""The delegate tool: requests, schema, results and chunks, independent of the transport."""

"""`remit mcp`: the tools by which anybody who speaks the Model Context Protocol delegates (issue 3, item 7).

Translates to `Remit` and decides nothing itself. `tools` says what can be asked, `asking` reads it, `waiting` waits for it, `answers`
puts it into words; `stdio` and `http` are the two ways in. A client that stops waiting, cancels its request or leaves ends no
delegation: that is found again by its id, and ended by `delegation_cancel`. Needs the extra `remit[mcp]`; nothing is imported from it
before a server is made.
"""

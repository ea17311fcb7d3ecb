"""Writing remit's MCP entry into the configuration of a coding agent, and taking it out again.

    tools        which file each of them reads, and what the entry is
    documents    one interface over the two formats
    jsontext     JSON with or without comments, changed as text
    tomltext     TOML, changed as text
    change       what will be written, the backup, and the way back

A person's file is never written anew from its values: only our entry is put in, changed or taken out; the rest stays as it is.
"""

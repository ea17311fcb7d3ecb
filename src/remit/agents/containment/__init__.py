"""Containment: a command or coding agent in its own namespaces, with a private copy of its vendor's directory and a list of hosts."""

"""Containment: a command or coding agent in namespaces of its own, with a private copy of its vendor's directory and a list of hosts."""

"""What runs inside the sandbox. Sent there compiled by `wire`, since the package itself cannot be seen from inside; never run outside.

The standard library alone, and little of it: each import is paid for by every run.
"""

PARTS = ("usage", "confine", "python", "keeper")
"""The modules of this package, each after those it imports; the last has `main`."""

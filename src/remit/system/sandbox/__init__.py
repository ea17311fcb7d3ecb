"""Runs untrusted code: bubblewrap, Landlock, seccomp and limits, combined as far as this machine supports them."""

"""Runs untrusted code: bubblewrap, Landlock, seccomp and limits, stacked as far as this machine offers them."""

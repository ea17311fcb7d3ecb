"""Running code that nobody trusts: bubblewrap, Landlock, seccomp and limits, stacked as far as this machine offers them."""

"""Benchmarks of remit's promises about speed and termination, each against its floor in the same run: `python -m bench`.

Measures and reports. Asserts nothing (the tests do that) and is not part of the installed package.
"""

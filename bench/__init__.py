"""What remit promises about speed and endings, measured against its floor in the same run: `python -m bench`.

Measures and reports; asserts nothing (the tests do that) and is no part of the installed package.
"""

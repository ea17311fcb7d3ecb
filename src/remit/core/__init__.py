"""The nouns of remit: pure values and rules, no input or output. Everything above imports from here."""

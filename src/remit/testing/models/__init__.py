"""A scripted model server on loopback, `remit.testing.ScriptedModels`. `python -m remit.testing.models` runs it by hand."""

"""A scripted model server on loopback, `remit.testing.ScriptedModels`."""

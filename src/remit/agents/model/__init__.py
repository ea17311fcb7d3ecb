"""Language models as agents: prompted with text, acting only by delegating, answering with a return."""

"""Language models as agents: asked in words, acting on the world only by delegating, answering with a return."""

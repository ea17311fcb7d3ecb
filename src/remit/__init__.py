"""remit: hand work to any agent and always get an answer back."""

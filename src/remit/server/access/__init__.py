"""Who may come in: bearer tokens, the local token file, certificates, tokens of delegations, and the limits of each caller."""

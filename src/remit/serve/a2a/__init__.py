"""The A2A 1.0 door: every agent of the directory as a skill on one card."""

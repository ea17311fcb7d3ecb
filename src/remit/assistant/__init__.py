"""The assistant: a language model whose only tool is `delegate`, and the conversations it holds (S5.8).

An agent of the directory like any other: each message to it is a delegation, recorded, timed and cancelled as every delegation is.
"""

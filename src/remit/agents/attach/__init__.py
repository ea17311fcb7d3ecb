"""The switchboard: one tree across processes. What an agent delegates from a process of its own is still its child.

The owner of a tree listens on a socket and gives each running delegation a token on demand; whoever opens a `Remit` with a token is
*attached*: what it delegates runs in the owner's engine, as a child of the token's delegation. So depth, path, deadline, budget, slots,
cancellation and record hold because it is the same code, not because they were carried over.

  address    sockets at paths of any length; whose delegation this code runs in, made into a token
  line       a connection: questions and answers in frames, the same at both ends
  board      the owner's end: tokens, the socket, who may come in and what they may ask; agents that they lend
  attached   the attached process's end
"""

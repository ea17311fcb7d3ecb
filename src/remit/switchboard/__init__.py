"""The switchboard: one tree across processes. What an agent delegates from a process of its own is still its child.

The owner of a tree listens on a socket and gives each running delegation a token on demand; whoever opens a `Remit` with a token is
*attached*: what it delegates runs in the owner's engine, as a child of the token's delegation. So depth, path, deadline, budget, slots,
cancellation and record hold because it is the same code, not because they were carried over.

  here       whose delegation the code runs in: context or environment, made into a token
  address    sockets at paths of any length
  line       a connection: questions and answers in frames, the same at both ends
  board      the owner's end: tokens, the socket, who may come in
  kinship    whether a process belongs to a delegation
  visit      what one attached process may ask
  declared   declarations of agents, as JSON
  borrowed   an agent that only the attached process has, as its owner runs it
  attached   the attached process's end
  lent       the same agent, as it is carried out there
"""

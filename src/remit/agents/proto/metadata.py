"""What stands in the metadata of gRPC calls beside their messages: who asks, where it stands, and in trailers what went wrong.

Written and read by the door (`serve.grpc`), by its clients and by remotes. Knows no connection.
"""

AUTHORIZATION = "authorization"
"""`Bearer TOKEN`."""
TRACEPARENT = "traceparent"
DEPTH = "remit-depth"
"""Of the caller, when it is a remit; honoured from those that were granted `relay`, like the two below."""
PATH = "remit-path"
"""JSON: the names from the root to the caller."""
DEADLINE = "remit-deadline-ns"
"""When the caller itself ends, in nanoseconds since 1970."""
CODE = "remit-code"
"""In the trailers of a call that was refused, as the two below: our own code."""
ADVICE = "remit-advice"
"""What to do next, with per cent signs where it is not ASCII."""
DETAILS = "grpc-status-details-bin"
"""A google.rpc.Status, with a Struct of the details."""
PUSHBACK = "grpc-retry-pushback-ms"
"""When to come again."""

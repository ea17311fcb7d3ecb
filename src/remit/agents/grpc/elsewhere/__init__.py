"""A task service elsewhere, spoken to by gRPC: reached, asked, followed to the end whatever becomes of the connection.

Used by `remit.client` and by `agents.grpc`. Needs `remit[grpc]`: imported only where gRPC is used.
"""

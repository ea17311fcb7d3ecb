"""The messages of the gRPC API: `.proto` files, and the code generated from them (never edited, not in git)."""

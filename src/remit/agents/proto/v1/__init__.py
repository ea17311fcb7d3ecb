"""The messages of the gRPC door: `.proto` files, and the code that the build makes of them (never edited, not in git)."""

"""`remit demo`: real work on the folder it is started in, and the promises of remit to be seen. No key, no server."""

"""TLS below a connection: the server's transport, and when the kernel wakes it up."""

"""What a stranger may try, and what it costs us: see README.md."""

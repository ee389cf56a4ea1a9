"""Writing exactly once: one decision per micro-batch, and the transactions that it ends."""

"""What judges a run afterwards: histories, lists, passes, and the logs of clients."""

"""Rules of follower fetching, without I/O."""

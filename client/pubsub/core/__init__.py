"""The rules of a transactional publisher, synchronous and without I/O."""

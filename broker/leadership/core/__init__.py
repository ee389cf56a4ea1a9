"""Rules of reading nearby, without I/O."""

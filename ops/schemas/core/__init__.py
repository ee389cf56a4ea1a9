"""What a registry holds and how it decides, without I/O."""

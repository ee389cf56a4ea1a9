"""What a schema means, for each of the three languages: parse, compare."""

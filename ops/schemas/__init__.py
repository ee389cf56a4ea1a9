"""A schema registry on a compacted topic: the REST API that Confluent's serializers speak."""

"""A blocking Kafka client: connections, retries and the questions that Spark's processes ask."""

"""Planning on the driver: which offsets a query reads, and how they are split into tasks."""

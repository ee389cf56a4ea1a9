"""A cluster of real processes under real faults: `make chaos`, see README.md."""

"""Parts of Quire measured by themselves, without a cluster."""

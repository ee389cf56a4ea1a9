"""Self-healing: an elected auditor finds ledgers that lack copies, workers make the copies."""

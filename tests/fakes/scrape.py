"""Reading what a program exposes, as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def parse(exposition: bytes | str) -> dict[str, float]:
    """Return what a scrape reads: `name{label="value"}` -> value, labels sorted."""
    text = exposition if isinstance(exposition, str) else exposition.decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found

"""Places in a partition as people write them: earliest, latest, an offset, a time."""

from __future__ import annotations

from datetime import datetime

import click


def place_of(text: str, option: str) -> dict[str, object]:
    """Return a place as the admin API takes it. Raises click.BadParameter, naming the option.

    A time without a zone is one of this machine's.
    """
    if text in ("earliest", "latest"):
        return {"to": text}
    if text.isascii() and text.isdigit():
        return {"to": "offset", "offset": int(text)}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset nor a time", param_hint=option
        ) from None
    return {"to": "timestamp", "timestamp_ms": round(moment.astimezone().timestamp() * 1000)}

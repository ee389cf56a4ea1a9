"""Checks of a running cluster, by what its nodes say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from client.security.admin_access import is_loopback
from ops.doctor.findings import Finding, fine, trouble, warning

TRANSACTION_S_MAX: Final = 60
"""A transaction that is open for longer is worth a word."""

SKEW_S_MAX: Final = 2.0
"""Clocks are compared by HTTP dates, which have whole seconds."""


def check_bookies(
    bookies: Sequence[Mapping[str, Any]], topics: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """There must be enough bookies for what topics promise; rows of the admin API."""
    writable = sum(row["state"] == "writable" for row in bookies)
    found = [
        warning(
            "bookies",
            f"bookie {row['bookie_id']} is {row['state'].replace('_', '-')}",
            "Look into its log; `quire bookie decommission` if it is gone for good."
            if row["state"] == "down"
            else "Look at its disk: `quire bookie info`.",
        )
        for row in bookies
        if row["state"] != "writable"
    ]
    blocked = [row["topic"] for row in topics if row["min_insync_replicas"] > writable]
    short = [row["topic"] for row in topics if row["replication_factor"] > writable]
    advice = "Start more bookies."
    if any(row["state"] == "read_only" for row in bookies):
        advice = (
            "Add bookies, or free space: shorten the retention of large topics (`quire topic alter"
            " TOPIC --set retention.ms=...`) or delete topics, then `quire bookie gc BOOKIE"
            " --major`."
        )
    if blocked:
        found.append(
            trouble(
                "bookies",
                f"{writable} writable bookies are fewer than the ack quorum of"
                f" {_some(blocked)}: they can be read and trimmed, but not written",
                advice,
            )
        )
    elif short:
        found.append(
            warning(
                "bookies",
                f"{writable} writable bookies are fewer than the write quorum of {_some(short)}:"
                " new ledgers have fewer copies",
                advice,
            )
        )
    else:
        found.append(fine("bookies", f"{writable} writable bookies are enough for every topic"))
    return found


def check_versions(versions: Mapping[str, str]) -> Finding:
    """By node: the version it runs."""
    by_version: dict[str, list[str]] = {}
    for node, version in versions.items():
        by_version.setdefault(version, []).append(node)
    if len(by_version) <= 1:
        return fine("versions", f"every node runs {next(iter(by_version), 'an unknown version')}")
    shown = "; ".join(f"{version}: {', '.join(nodes)}" for version, nodes in by_version.items())
    return warning(
        "versions",
        f"nodes run different versions: {shown}",
        "Fine during an upgrade; otherwise complete it (ops/handbook/RUN.md).",
    )


def check_clocks(skews_s: Mapping[str, float]) -> Finding:
    """By node: how far its clock is ahead of ours."""
    off = {node: skew for node, skew in skews_s.items() if abs(skew) > SKEW_S_MAX}
    if not off:
        return fine("clocks", "the nodes' clocks agree with this one")
    shown = ", ".join(f"{node} by {skew:+.0f} s" for node, skew in off.items())
    return warning(
        "clocks",
        f"clocks differ from this one: {shown}",
        "Run a time service (chrony) everywhere: retention, timestamps and lag in seconds are"
        " by the clock. No promise depends on it.",
    )


def check_brokers(brokers: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Rows of the admin API."""
    found = []
    loopback = [row for row in brokers if is_loopback(row["host"])]
    others = len(brokers) - len(loopback)
    if loopback and others:
        names = ", ".join(str(row["broker_id"]) for row in loopback)
        found.append(
            trouble(
                "advertised",
                f"brokers {names} send clients to loopback, others of the cluster do not",
                "Set their advertised_host to what leads to them from other machines.",
            )
        )
    for row in brokers:
        name, live = f"broker {row['broker_id']}", row["live"]
        if live is None:
            found.append(
                trouble("brokers", f"{name} cannot be reached: {row['silence']}", "See its log.")
            )
        elif not live["is_ready"]:
            reasons = "; ".join(live["not_ready"][:3])
            found.append(trouble("brokers", f"{name} is not ready: {reasons}", "See its log."))
        elif row["is_unloaded"]:
            found.append(
                warning("brokers", f"{name} is unloaded", f"`quire broker load {name[7:]}`")
            )
        else:
            found.append(fine("brokers", f"{name} is ready"))
    return found


def check_transactions(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Rows of the admin API: those whose transaction is open, or decided and not written."""
    found = []
    for row in rows:
        name, open_s = row["transactional_id"], row["open_seconds"]
        if row["state"] != "Ongoing":
            found.append(
                trouble(
                    "transactions",
                    f"the transaction of {name} is decided, and {row['partition_count']} partitions"
                    f" have not confirmed it after {open_s:.0f} s",
                    f"Do they have leaders? `quire transaction describe {name}` names them.",
                )
            )
            continue
        client = f"client {row['client_id']} at {row['client_host']}"
        found.append(
            warning(
                "transactions",
                f"{name} has a transaction open for {open_s:.0f} s, from"
                f" {client if row['client_host'] else 'a client not seen since a takeover'}:"
                " consumers of committed records wait for its end",
                f"Look at that client; `quire transaction abort {name}` ends it.",
            )
        )
    return found or [fine("transactions", "no transaction hangs")]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more topics"

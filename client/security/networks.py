"""Says which addresses are one stranger's: what is counted for each of them is counted together.

An IPv4 address is one. Of IPv6 whoever has a line has 2**64 of them, so the first 64 bits count.
"""

from __future__ import annotations

import functools
import ipaddress

_HOST_BITS = 64
_REMEMBERED = 10_000


@functools.lru_cache(_REMEMBERED)
def network_of(host: str) -> str:
    """Return the network of a numeric address; what is none is a network of its own."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4 or address.is_loopback:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_address(int(address) >> _HOST_BITS << _HOST_BITS)) + f"/{_HOST_BITS}"

"""Choose the partition of each row by Kafka's rule, for all rows at once.

A row that names a partition goes there; one with a key goes where Kafka's own producers put that
key (murmur2 of its bytes, without the sign, modulo the partitions), so that producers of any kind
keep a key's order; rows without a key go together to one partition after the other, which makes
large batches (KIP-480).

Source: `org.apache.kafka.common.utils.Utils.murmur2`; tests compare with aiokafka's.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)


def murmur2(keys: pa.Array) -> _Words:
    """Return the hash of each key (binary, no nulls): a step per four bytes of the longest."""
    if not len(keys):
        return np.zeros(0, dtype=np.uint32)
    _validity, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    # Padding: the last word of the last key is read whole, and shifted.
    raw = np.frombuffer((data.to_pybytes() if data is not None else b"") + bytes(4), dtype=np.uint8)
    words = np.ndarray(shape=(len(raw) - 3,), dtype="<u4", buffer=raw.data, strides=(1,))
    with np.errstate(over="ignore"):
        found: _Words = _SEED ^ lengths.astype(np.uint32)
        for index in range(int(lengths.max()) // 4):
            rows = np.flatnonzero(lengths >= 4 * (index + 1))
            word = words[starts[rows] + 4 * index] * _M
            word = (word ^ (word >> _R)) * _M
            found[rows] = (found[rows] * _M) ^ word
        rows = np.flatnonzero(lengths % 4)
        left = (lengths[rows] % 4).astype(np.uint32)
        tail = words[starts[rows] + lengths[rows] // 4 * 4]
        tail = tail & ((np.uint32(1) << (left * np.uint32(8))) - np.uint32(1))
        found[rows] = (found[rows] ^ tail) * _M
        found = (found ^ (found >> np.uint32(13))) * _M
    return found ^ (found >> np.uint32(15))


def choose(wanted: pa.Array, keys: pa.Array, partition_count: int, without_key: int) -> Numbers:
    """Return the partition of each row. `wanted` (int32) and `keys` (binary) may hold nulls.

    `without_key` is where rows go that have neither. What `wanted` says is not checked.
    """
    chosen = np.full(len(keys), without_key, dtype=np.int64)
    keyed = keys.is_valid().to_numpy(zero_copy_only=False)
    if keyed.any():
        hashes = murmur2(keys.drop_null()) & np.uint32(0x7FFFFFFF)
        chosen[keyed] = hashes.astype(np.int64) % partition_count
    if wanted.null_count < len(wanted):
        named = wanted.is_valid().to_numpy(zero_copy_only=False)
        chosen[named] = wanted.drop_null().to_numpy(zero_copy_only=False)
    return chosen

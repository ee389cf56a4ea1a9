from client.wire.kafka.batches.records import Buffer

def read_records(
    data: Buffer,
    at: int,
    count: int,
    base_timestamp: int,
    oldest_ms: int,
    latest_ms: int,
    keys_required: bool,
    /,
) -> tuple[int, int, int, bool, tuple[int, ...], tuple[int, ...]]: ...

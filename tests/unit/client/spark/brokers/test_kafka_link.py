"""One connection: answers that come in pieces, late, wrong or not at all."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from client.spark.brokers.kafka_link import KafkaLink, LinkBroken
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import encode_response

Answer = Callable[[int], bytes]


def versions(correlation_id: int) -> bytes:
    keys = [{"api_key": 3, "min_version": 0, "max_version": 12}]
    buffers = encode_response(18, 0, correlation_id, {"error_code": 0, "api_keys": keys})
    return b"".join(map(bytes, buffers))


class Broker:
    """Answers the n-th request with the n-th function's bytes; ends when they are used up."""

    def __init__(self, *answers: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answers = answers
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as link:
            for answer in self._answers:
                head = link.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                body = link.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                link.sendall(answer(struct.unpack(">i", body[4:8])[0]))


@pytest.fixture
def broker() -> Iterator[Callable[..., Broker]]:
    started: list[Broker] = []

    def start(*answers: Answer) -> Broker:
        started.append(Broker(*answers))
        return started[-1]

    yield start
    for each in started:
        each.thread.join(10)


def ask(link: KafkaLink) -> bytes:
    return bytes(link.ask_raw(ApiKey.METADATA, b"", 5.0, 0))


def test_an_answer(broker: Callable[..., Broker]) -> None:
    answer = struct.pack(">ii", 4 + 5, 2) + b"hello"
    link = KafkaLink("127.0.0.1", broker(versions, lambda _: answer).port, 5.0)
    assert link.version(ApiKey.METADATA, 99) == 12
    assert link.version(ApiKey.METADATA, 9) == 9
    assert ask(link) == b"hello"
    link.close()


def test_large_answers_have_room_behind_them_and_share_buffers(
    broker: Callable[..., Broker],
) -> None:
    first, second = b"a" * 200_000, b"b" * 180_000
    answers = [
        lambda id_, body=body: struct.pack(">ii", 4 + len(body), id_) + body
        for body in (first, second)
    ]
    link = KafkaLink("127.0.0.1", broker(versions, *answers).port, 5.0)
    got = link.ask_raw(ApiKey.METADATA, b"", 5.0, 0, room_bytes=64)
    assert (bytes(got[:-64]), len(got)) == (first, len(first) + 64)
    buffer = got.obj
    del got
    again = link.ask_raw(ApiKey.METADATA, b"", 5.0, 0, room_bytes=64)
    assert again.obj is buffer
    assert (bytes(again[:-64]), len(again)) == (second, len(second) + 64)
    link.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "the broker closed the connection"),
        (struct.pack(">ii", 100, 2), "the broker closed the connection"),
        (b"HTTP/1.1 400 Bad Request", "not Kafka's"),
        (struct.pack(">ii", 4, 77), "an answer to another request"),
        (struct.pack(">i", 2) + b"xx", "4 bytes expected"),
    ],
)
def test_answers_that_are_none(broker: Callable[..., Broker], answer: bytes, words: str) -> None:
    link = KafkaLink("127.0.0.1", broker(versions, lambda _: answer).port, 5.0)
    with pytest.raises(LinkBroken, match=words):
        ask(link)


def test_an_api_that_the_broker_lacks(broker: Callable[..., Broker]) -> None:
    link = KafkaLink("127.0.0.1", broker(versions).port, 5.0)
    with pytest.raises(LinkBroken, match="no common version of offset_commit"):
        link.version(ApiKey.OFFSET_COMMIT, 8)
    link.close()


def test_nobody_there() -> None:
    with pytest.raises(LinkBroken, match=r"127\.0\.0\.1:1: Connection refused"):
        KafkaLink("127.0.0.1", 1, 5.0)


def test_closing_wakes_a_thread_that_waits(broker: Callable[..., Broker]) -> None:
    waiting, closed = threading.Event(), threading.Event()

    def silent(_: int) -> bytes:
        waiting.set()
        assert closed.wait(10)
        return b""

    link = KafkaLink("127.0.0.1", broker(versions, silent).port, 60.0)
    failures: list[str] = []

    def work() -> None:
        try:
            ask(link)
        except LinkBroken as error:
            failures.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(10)
    link.close()
    thread.join(10)
    closed.set()
    assert len(failures) == 1

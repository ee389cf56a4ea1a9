"""A small cluster with something to look at, and Chromium to look with.

Playwright's own event loop runs while its package of tests does, so no test here is a coroutine.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.page.browser import Visit, launch

RECORDS = 60
READ_TO = 10


class Api:
    """The admin API of one broker, to compare the page with."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; return the answer's body. Raises HTTPError."""
        request = urllib.request.Request(
            f"{self.url}/admin/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def get(self, path: str) -> Any:
        """GET a path below the prefix."""
        return self.ask("GET", path)

    def items(self, path: str) -> list[Any]:
        """GET the first page of a list."""
        found: list[Any] = self.get(path)["items"]
        return found

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Change something; a broker that is just taking over is asked again."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.ask(method, path, body)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error.read().decode()}") from error
                time.sleep(0.1)

    def publish(self, topic: str, partition: int, *values: str) -> None:
        """Publish to one partition."""
        records = [{"key": f"k{value}", "value": value} for value in values]
        path = f"/topics/{topic}/partitions/{partition}/records"
        self.send("POST", path, {"records": records})

    def create(self, topic: str, partitions: int = 1, **wish: Any) -> None:
        """Create a topic and wait until all of it is led."""
        self.send("PUT", f"/topics/{topic}", {"partition_count": partitions, **wish})
        path = f"/topics/{topic}/partitions"
        wait_until(
            lambda: all(row["state"] == "led" for row in self.items(path)), f"{topic} to be led"
        )


@pytest.fixture(scope="package")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies and two brokers of these tests' own, because some of them unload a broker."""
    folder = tmp_path_factory.mktemp("page")
    with LocalCluster(folder, bookies=4, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def api(small_cluster: LocalCluster) -> Api:
    """The API of the first broker."""
    return Api(f"http://127.0.0.1:{small_cluster.about['brokers'][0]['admin']}")


@pytest.fixture(scope="package")
def content(api: Api) -> Iterator[None]:
    """Topic `orders` with three ledgers in partition 0, striped `wide`, and groups of readers."""
    api.create("orders", 3, settings={"retention.ms": 86_400_000})
    api.create("wide", 1, replication_factor=2, settings={"quire.ensemble.size": 4})
    for topic in ("orders", "wide"):
        for part in range(3):
            values = [str(value) for value in range(RECORDS * part // 3, RECORDS * (part + 1) // 3)]
            for value in values:
                api.publish(topic, 0, value)
            if part < 2:
                api.send("POST", f"/topics/{topic}/partitions/0/roll")
    reset = {"topic": "orders", "to": "offset", "offset": READ_TO, "partitions": [0]}
    api.send("PUT", "/groups/billing/offsets", reset)
    yield


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all of these tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, api: Api, content: None) -> Iterator[Callable[..., Visit]]:
    """Open tabs on the small cluster; at the end none of them may have done anything wrong."""
    visits: list[Visit] = []

    def start(**options: Any) -> Visit:
        visits.append(Visit(browser, api.url, **options))
        return visits[-1]

    yield start
    for one in visits:
        one.close()
    for one in visits:
        one.check()


@pytest.fixture
def reader(small_cluster: LocalCluster) -> Iterator[Callable[[str, str], None]]:
    """Start consumers: `reader(topic, group)` returns once the consumer has read something."""
    from kafka import KafkaConsumer

    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(topic: str, group: str) -> None:
        has_read = threading.Event()

        def run() -> None:
            consumer = KafkaConsumer(
                topic, bootstrap_servers=small_cluster.bootstrap_servers, group_id=group,
                client_id=f"{group}-app", auto_offset_reset="earliest",
            )  # fmt: skip
            while not stop.is_set():
                if consumer.poll(timeout_ms=100):
                    consumer.commit()
                    has_read.set()
            consumer.close()

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        assert has_read.wait(60), "the consumer has read nothing"

    yield start
    stop.set()
    for thread in threads:
        thread.join()

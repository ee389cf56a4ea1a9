"""Draws the handbook's pictures: `python -m ops.docs.pictures`.

Each is a function that places boxes, arrows and words; all share one style, for light and dark. A
test compares the files with what this draws, and sees that each stands on a page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("pictures")

_STYLE: Final = """\
  <style>
    svg { --page: #ffffff; --edge: #d5dae3; --box: #f5f7fa; --ink: #1c2430; --soft: #5b6676;
      --a: #2563a8; --b: #0f766e; --c: #b45309;
      --a-fill: #dbe8f7; --b-fill: #d3efeb; --c-fill: #fbe6cc; }
    @media (prefers-color-scheme: dark) {
      svg { --page: #12161d; --edge: #343d4b; --box: #1b212b; --ink: #e8ecf2; --soft: #9aa6b6;
        --a: #7db4ee; --b: #5cc9bb; --c: #f0a95a;
        --a-fill: #1d3450; --b-fill: #173d3a; --c-fill: #47301a; }
    }
    text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
      sans-serif;
      font-size: 13px; fill: var(--soft); text-anchor: middle; }
    .name { font-size: 15px; font-weight: 600; fill: var(--ink); }
    .left { text-anchor: start; }
    .box { fill: var(--box); stroke: var(--edge); stroke-width: 1.5; }
    .a { fill: var(--a-fill); stroke: var(--a); stroke-width: 1.5; }
    .b { fill: var(--b-fill); stroke: var(--b); stroke-width: 1.5; }
    .c { fill: var(--c-fill); stroke: var(--c); stroke-width: 1.5; }
    .gone { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 4 4; }
    .line { fill: none; stroke: var(--soft); stroke-width: 1.5; }
    .dots { stroke-dasharray: 2 5; }
    .head { fill: var(--soft); }
  </style>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
      orient="auto-start-reverse"><path class="head" d="M0 0 10 5 0 10z"/></marker>
  </defs>
"""


class Picture:
    """What is drawn so far."""

    def __init__(self, title: str, about: str, width: int, height: int) -> None:
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
            ' aria-labelledby="title about">',
            f'  <title id="title">{escape(title)}</title>',
            f'  <desc id="about">{escape(about)}</desc>',
            _STYLE.rstrip("\n"),
            f'  <rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="16"'
            ' fill="var(--page)" stroke="var(--edge)"/>',
        ]

    def box(
        self, x: int, y: int, width: int, height: int, name: str, *words: str, kind: str = "box"
    ) -> None:
        """Draw a box with a name and lines of words. `kind`: a class of the style."""
        self._lines.append(
            f'  <rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="9"/>'
        )
        words = tuple(word for word in words if word)
        first = y + height // 2 + 5 - 9 * len(words)
        self.text(x + width // 2, first, name, kind="name")
        for row, word in enumerate(words, 1):
            self.text(x + width // 2, first + 18 * row, word)

    def text(self, x: int, y: int, words: str, kind: str = "") -> None:
        """Write words, their middle at x unless `kind` says left."""
        shown = f' class="{kind}"' if kind else ""
        self._lines.append(f'  <text{shown} x="{x}" y="{y}">{escape(words)}</text>')

    def arrow(self, *points: int, both: bool = False, dots: bool = False) -> None:
        """Draw a line with a head through points, x and y in turn."""
        pairs = [f"{x} {y}" for x, y in zip(points[::2], points[1::2], strict=True)]
        start = ' marker-start="url(#head)"' if both else ""
        kind = "line dots" if dots else "line"
        self._lines.append(
            f'  <path class="{kind}" d="M{" L".join(pairs)}"{start} marker-end="url(#head)"/>'
        )

    def drawn(self) -> str:
        """Return the file."""
        return "\n".join([*self._lines, "</svg>", ""])


def record() -> Picture:
    """How a record travels."""
    drawn = Picture(
        "How a record travels",
        "A producer sends a batch to the partition's leader. The leader sends it as an entry to"
        " three bookies. Each syncs it to its disk and answers. With two answers the entry is"
        " confirmed, and the producer gets its acknowledgement; the third answer comes later.",
        800, 380,
    )  # fmt: skip
    drawn.box(40, 150, 150, 70, "producer", "acks=all")
    drawn.box(300, 150, 170, 70, "broker", "leads the partition", kind="a")
    for at, (name, word, kind) in enumerate(
        (
            ("bookie 1", "synced", "b"),
            ("bookie 2", "synced", "b"),
            ("bookie 3", "still syncing", "c"),
        )
    ):
        y = 40 + at * 110
        drawn.box(600, y, 160, 70, name, word, kind=kind)
        drawn.arrow(472, 175 + 10 * at, 596, y + 25)
        if kind == "b":
            drawn.arrow(596, y + 50, 472, 190 + 10 * at, dots=True)
    drawn.arrow(192, 172, 296, 172)
    drawn.text(244, 162, "1 batch")
    drawn.text(530, 96, "2 entry")
    drawn.arrow(296, 202, 192, 202, dots=True)
    drawn.text(244, 222, "4 answer")
    drawn.text(568, 218, "3 durable")
    drawn.text(
        400,
        350,
        "Three copies (Qw), two of them durable before the answer (Qa): min.insync.replicas=2",
    )
    return drawn


def partition() -> Picture:
    """A partition as ledgers."""
    drawn = Picture(
        "A partition as ledgers",
        "The offsets of a partition are cut into segments, each of which is one ledger. Sealed"
        " ones never change; only the last is written. A ledger is written to an ensemble of"
        " bookies; when one of them failed in the middle, the rest of the ledger has another in"
        " its place.",
        800, 340,
    )  # fmt: skip
    drawn.text(40, 40, "partition orders-0", kind="name left")
    for x, width, name, words, kind in (
        (40, 190, "ledger 12", "offsets 0 to 9,999", "box"),
        (240, 300, "ledger 57", "offsets 10,000 to 24,999", "a"),
        (550, 210, "ledger 81", "from 25,000: written", "c"),
    ):
        drawn.box(x, 55, width, 64, name, words, kind=kind)
    drawn.text(135, 140, "sealed")
    drawn.text(390, 140, "sealed")
    drawn.text(655, 140, "open: the leader's alone")
    drawn.arrow(390, 150, 390, 186)
    drawn.text(40, 210, "where ledger 57 is", kind="name left")
    drawn.box(240, 190, 165, 56, "b1, b2, b3", "entries 0 to 640", kind="b")
    drawn.box(415, 190, 125, 56, "b1, b2, b4", "from 641 on", kind="b")
    drawn.text(
        400,
        285,
        "b3 failed at entry 641: an ensemble change put b4 in its place, and nothing stopped.",
    )
    drawn.text(400, 307, "Auto recovery copies entries 0 to 640 from b1 or b2 to another bookie.")
    return drawn


def takeover() -> Picture:
    """A takeover in five frames."""
    drawn = Picture(
        "A takeover in five frames",
        "One: broker 1 writes to the last ledger. Two: broker 1 is gone or cut off, and broker 2"
        " claims the partition. Three: broker 2 fences the ledger at its bookies; broker 1 gets"
        " no acknowledgement any more. Four: it finds the ledger's end and closes it. Five: it"
        " adds a new ledger to the list by compare-and-set, and leads.",
        980, 330,
    )  # fmt: skip
    gone, refused = ("broker 1", "gone, or cut off", "gone"), ("broker 1", "refused", "gone")
    frames = (
        ("1 led", ("broker 1", "leads", "a"), ("broker 2", "", "box"), "open", "c"),
        ("2 claimed", gone, ("broker 2", "claims", "a"), "open", "c"),
        ("3 fenced", refused, ("broker 2", "fences", "a"), "fenced", "c"),
        ("4 closed", refused, ("broker 2", "recovers", "a"), "closed", "b"),
        ("5 led", ("broker 1", "", "gone"), ("broker 2", "leads", "a"), "a new one", "c"),
    )
    words = (
        "written by broker 1", "nobody knows its end", "no further add counts",
        "its end is known", "added by compare-and-set",
    )  # fmt: skip
    for at, (title, first, second, ledger, kind) in enumerate(frames):
        x = 30 + at * 190
        drawn.text(x + 80, 40, title, kind="name")
        for row, (name, word, look) in enumerate((first, second)):
            drawn.box(x, 58 + row * 72, 160, 58, name, word, kind=look)
        if at == 0:
            drawn.arrow(x - 8, 87, x - 14, 87, x - 14, 251, x - 3, 251)
        else:
            drawn.arrow(x + 80, 190, x + 80, 222)
        drawn.box(x, 226, 160, 50, "last ledger", ledger, kind=kind)
        drawn.text(x + 80, 300, words[at])
    return drawn


def listeners() -> Picture:
    """Listeners, and who is which principal."""
    drawn = Picture(
        "Listeners and principals",
        "A broker with three listeners. At a plain one every client is ANONYMOUS. At one with TLS"
        " and client certificates a client is the name in its certificate. At one with SASL it is"
        " the user that logged in. Brokers come by the listener that inter_broker_listener names.",
        860, 360,
    )  # fmt: skip
    rows = (
        (
            "another broker",
            "PLAINTEXT on 10.0.0.1",
            "User:ANONYMOUS",
            "as everybody else there",
            "c",
        ),
        (
            "a service",
            "SSL, tls_client_auth=required",
            "User:CN=billing",
            "from its certificate",
            "b",
        ),
        ("a person, a job", "SASL_SSL, SCRAM or a token", "User:anna", "who logged in", "a"),
    )
    for at, (who, how, principal, why, kind) in enumerate(rows):
        y = 40 + at * 84
        drawn.box(40, y, 170, 62, who)
        drawn.box(290, y, 250, 62, ("INSIDE", "SERVICES", "OUTSIDE")[at], how, kind=kind)
        drawn.box(620, y, 200, 62, principal, why)
        drawn.arrow(212, y + 31, 286, y + 31)
        drawn.arrow(542, y + 31, 616, y + 31)
    drawn.text(
        430,
        312,
        "Rights belong to the principal, whichever listener it came by: so ANONYMOUS must never",
    )
    drawn.text(
        430,
        332,
        "be a super user. A listener that is named for brokers alone lets them open links.",
    )
    return drawn


def ports() -> Picture:
    """Ports and certificates."""
    drawn = Picture(
        "Ports and certificates",
        "Clients reach brokers at 9092 by SASL_SSL. Brokers reach bookies at 3181 with their"
        " certificates, and ZooKeeper at 2181. Bookies reach each other and ZooKeeper. Operators"
        " and Prometheus reach the HTTP ports 9640 and 9740 with tokens. ZooKeeper's servers use"
        " 2888 and 3888 among themselves.",
        860, 400,
    )  # fmt: skip
    drawn.box(40, 40, 180, 64, "clients", "user and password")
    drawn.box(30, 296, 192, 64, "operator, Prometheus", "token")
    drawn.box(340, 40, 190, 90, "broker", "9092 Kafka", "9640 HTTP", kind="a")
    drawn.box(340, 270, 190, 90, "bookie", "3181 BookKeeper", "9740 HTTP", kind="b")
    drawn.box(650, 155, 170, 90, "ZooKeeper", "2181 clients", "2888, 3888 servers", kind="c")
    drawn.arrow(222, 72, 336, 72)
    drawn.text(280, 62, "TLS, SCRAM")
    drawn.arrow(222, 310, 300, 310, 300, 110, 336, 110)
    drawn.arrow(222, 335, 336, 335)
    drawn.text(280, 352, "HTTPS")
    drawn.arrow(435, 132, 435, 266)
    drawn.text(530, 204, "both certificates")
    drawn.arrow(532, 85, 700, 85, 700, 151)
    drawn.arrow(532, 315, 700, 315, 700, 249)
    drawn.text(640, 76, "certificate, user quire")
    drawn.text(640, 336, "certificate, user quire")
    return drawn


def racks() -> Picture:
    """Where copies lie, and who reads where."""
    drawn = Picture(
        "Racks",
        "Three racks with a broker and two bookies each. The leader is in rack a: one copy of"
        " each entry goes to a bookie there, the others to bookies in racks b and c. A consumer"
        " in rack c reads sealed segments from the broker in its rack, and the tail from the"
        " leader.",
        860, 400,
    )  # fmt: skip
    for at, rack in enumerate("abc"):
        x = 30 + at * 275
        drawn.box(x, 30, 250, 280, "", kind="gone")
        drawn.text(x + 125, 56, f"rack {rack}", kind="name")
        role = (
            "leader"
            if rack == "a"
            else ("serves sealed segments" if rack == "c" else "another broker")
        )
        drawn.box(x + 25, 74, 200, 58, f"broker {at + 1}", role, kind="a" if rack != "b" else "box")
        for number in (0, 1):
            has = number == (0, 1, 0)[at]
            drawn.box(x + 20 + number * 110, 220, 100, 62, f"bookie {2 * at + number + 1}",
                      "a copy" if has else "", kind="b" if has else "box")  # fmt: skip
    drawn.arrow(110, 134, 100, 216)
    drawn.arrow(200, 134, 480, 216)
    drawn.arrow(230, 134, 630, 216)
    drawn.box(605, 336, 200, 44, "consumer in rack c")
    drawn.arrow(806, 358, 820, 358, 820, 103, 807, 103)
    drawn.arrow(605, 362, 45, 362, 45, 136, dots=True)
    drawn.text(330, 354, "only the tail, from the leader")
    return drawn


def machines() -> Picture:
    """Three machines, of which any one may be lost."""
    drawn = Picture(
        "Three machines",
        "Each of three machines has a broker, a bookie and a ZooKeeper server. Every record has a"
        " copy on each bookie, two of them durable before the acknowledgement, and two of three"
        " ZooKeeper servers are a majority, so any one machine may be lost.",
        860, 380,
    )  # fmt: skip
    for at in range(3):
        x = 30 + at * 275
        lost = at == 2
        drawn.box(x, 30, 250, 270, "", kind="gone")
        drawn.text(x + 125, 56, f"q{at + 1}.example" + (" (lost)" if lost else ""), kind="name")
        for row, (name, words, kind) in enumerate(
            (
                ("broker", "leads more partitions now", "a"),
                ("bookie", "a copy of every record", "b"),
                ("ZooKeeper", "one of a majority", "c"),
            )
        ):
            drawn.box(x + 20, 70 + row * 75, 210, 62, name, "" if lost else words,
                      kind="gone" if lost else kind)  # fmt: skip
    drawn.text(
        430,
        332,
        "Two copies of three are enough to acknowledge, two of three ZooKeeper servers to decide:",
    )
    drawn.text(430, 352, "any one machine may be lost, and nothing that was acknowledged is.")
    return drawn


PICTURES: Final[Mapping[str, Callable[[], Picture]]] = {
    f"{one.__name__}.svg": one
    for one in (record, partition, takeover, listeners, ports, racks, machines)
}
"""Name of a file -> what draws it."""


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw().drawn(), encoding="utf-8")
        sys.stdout.write(f"drew {name}\n")


if __name__ == "__main__":
    main()

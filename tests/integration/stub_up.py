"""`quire up` with stub bookies and brokers: `python -m tests.integration.stub_up FLAGS...`."""

import sys

import ops.cli.up
from ops.cli.main import main
from ops.local.cluster import Programs

STUB = (sys.executable, "-m", "tests.integration.stub_nodes")
ops.cli.up.PROGRAMS = Programs(bookie=(*STUB, "bookie"), broker=(*STUB, "broker"))
sys.argv[1:1] = ["up"]
main()

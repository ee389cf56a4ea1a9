#!/bin/sh
# jsonschema 4.26.0: with `"multipleOf": 0.01` it refuses 1,363 of the 10,000 prices from 0.01 to 100.00.
#
# JSON Schema's numbers are decimal: 0.07 is seven times 0.01. jsonschema divides floats and looks at what is
# left, so whether a price passes depends on how it is rounded in binary. The first one is 0.07. jsonschema-rs
# 0.61.2 accepts all of them, so the same record passes one producer and fails at the next one. Send cents as
# integers, or parse JSON with `parse_float=decimal.Decimal` and give the bound as a Decimal, too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jsonschema==4.26.0 jsonschema-rs==0.61.2
"$folder/venv/bin/python" - <<'PYTHON'
import jsonschema_rs
from jsonschema import Draft202012Validator

schema = {"type": "number", "multipleOf": 0.01}
prices = [cents / 100 for cents in range(1, 10_001)]
slow, exact = Draft202012Validator(schema), jsonschema_rs.validator_for(schema)
refused = [price for price in prices if not slow.is_valid(price)]
also = [price for price in prices if not exact.is_valid(price)]
print(f"jsonschema refuses {len(refused)} of {len(prices)} prices, first {refused[:5]}")
print(f"jsonschema-rs refuses {len(also)}")
assert (len(refused), len(also)) == (1363, 0), "the behaviour changed"
PYTHON

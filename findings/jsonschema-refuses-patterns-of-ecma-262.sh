#!/bin/sh
# jsonschema 4.26.0: check_schema refuses patterns that JSON Schema allows, because Python's `re` cannot read them.
#
# JSON Schema names ECMA 262 for `pattern`. The meta schemas say `"format": "regex"`, and `check_schema` asserts
# formats by default (`format_checker` is set to the draft's own), where "regex" is `re.compile`. So schemas with
# `\p{L}` (names of people) or named groups as JavaScript writes them are "not a 'regex'", although the validator
# was only asked whether the schema is one. `format_checker=None` lets them pass.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jsonschema==4.26.0
"$folder/venv/bin/python" - <<'PYTHON'
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

for pattern in (r"^\p{L}+$", r"(?<year>\d{4})"):
    schema = {"type": "string", "pattern": pattern}
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        print("refused:", error.message)
        assert "is not a 'regex'" in error.message
    else:
        raise SystemExit(f"the behaviour changed: {pattern} is accepted")
    Draft202012Validator.check_schema(schema, format_checker=None)
    print("accepted without a format checker:", pattern)
PYTHON

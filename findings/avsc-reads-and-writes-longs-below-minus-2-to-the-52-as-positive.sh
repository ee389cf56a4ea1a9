#!/bin/sh
# avsc 5.7.9 (Avro for JavaScript): a long below -2^52 is written, and read, as a positive number.
#
# JavaScript's numbers hold integers up to 2^53 exactly, and avsc refuses longs that may lose precision. Its
# zigzag arithmetic goes wrong before: from -2^52 - 1 on, the sign is lost. Both directions are affected in the
# same way, and no error is raised: -4503599627370497 comes back as 4503599627370496, and other languages read
# that, too, from the bytes. Nanoseconds before 1970 and identifiers made of signed hashes are such numbers.
# `avro.types.LongType.__with` with BigInt avoids it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund avsc@5.7.9
node - <<'JAVASCRIPT'
const assert = require('assert')
const avro = require('avsc')

const long = avro.Type.forSchema('long')
const seen = []
for (const value of [-(2 ** 52), -(2 ** 52) - 1, -(2 ** 52) - 2]) {
  assert(Number.isSafeInteger(value) && long.isValid(value))
  const bytes = long.toBuffer(value)
  seen.push(long.fromBuffer(bytes))
  console.log(`${value} is written as ${bytes.toString('hex')} and read as ${seen.at(-1)}`)
}
assert.deepStrictEqual(seen, [-(2 ** 52), 2 ** 52, 2 ** 52 + 2], `the behaviour changed: ${seen}`)
const right = Buffer.from('8180808080808010', 'hex') // -2^52 - 1, as Avro's specification has it
console.log('the right bytes of -2^52 - 1 are read as', long.fromBuffer(right))
assert.strictEqual(long.fromBuffer(right) > 0, true, 'the behaviour changed: it is read rightly')
JAVASCRIPT

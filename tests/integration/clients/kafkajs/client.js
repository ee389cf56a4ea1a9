// One step of the kafkajs test: `node client.js STEP JSON`. Prints one line of JSON.
//
//   create   {brokers, topic, partitions}
//   publish  {brokers, topic, messages: [{key, value}], gzip}      -> [{partition, baseOffset}]
//   group    {brokers, topic, group, share, messages, count}       -> [[record, ...] per member]
//
// Each takes ca, user and password, too, for brokers that want TLS and a login.
//
// `group` starts a member per number in `share`, waits until each has been assigned that many
// partitions, publishes `messages`, waits until `count` records have arrived, and leaves. Each
// record is committed when it is processed.

const { readFileSync } = require('fs')

const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const HEADERS = { origin: 'quire test' }

async function create(kafka, { topic, partitions }) {
  const admin = kafka.admin()
  await admin.connect()
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: partitions }] })
  await admin.disconnect()
  return created
}

async function publish(kafka, { topic, messages, gzip }) {
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const sent = await producer.send({
    topic,
    acks: -1,
    compression: gzip ? CompressionTypes.GZIP : CompressionTypes.None,
    messages: messages.map((message) => ({ ...message, headers: HEADERS })),
  })
  await producer.disconnect()
  return sent
}

async function group(kafka, { topic, group, share, messages, count }) {
  const received = share.map(() => [])
  const assigned = share.map(() => 0)
  let arrived = 0
  let [settled, done] = [null, null]
  const shared = new Promise((resolve) => { settled = resolve })
  const all = new Promise((resolve) => { done = resolve })
  const consumers = []
  for (const index of share.keys()) {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000 })
    consumers.push(consumer)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      assigned[index] = (payload.memberAssignment[topic] ?? []).length
      if (assigned.join() === share.join()) settled()
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
  }
  await Promise.all(consumers.map((consumer, index) => consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      received[index].push({
        partition,
        offset: Number(message.offset),
        key: message.key.toString(),
        value: message.value.toString(),
        origin: message.headers.origin.toString(),
      })
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      arrived += 1
      if (arrived >= count) done()
    },
  })))
  await shared
  if (messages.length) await publish(kafka, { topic, messages })
  await all
  for (const consumer of consumers) await consumer.disconnect()
  return received
}

function secured({ ca, user, password }) {
  if (!user) return {}
  const sasl = { mechanism: 'scram-sha-512', username: user, password }
  return { ssl: { ca: [readFileSync(ca, 'utf-8')] }, sasl }
}

async function main() {
  const [step, text] = process.argv.slice(2)
  const settings = JSON.parse(text)
  const kafka = new Kafka({
    clientId: 'quire-test',
    brokers: settings.brokers.split(','),
    logLevel: logLevel.ERROR,
    ...secured(settings),
  })
  console.log(JSON.stringify(await { create, publish, group }[step](kafka, settings)))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})

// One step of the transactional tests with kafkajs: `node transactions.js STEP JSON`. Prints one
// line of JSON. The steps are those of ../java/Transactions.java.

const { Kafka, logLevel } = require('kafkajs')

const producerOf = (kafka, { id }) =>
  kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })

const message = (n) => ({ key: `key-${n % 20}`, value: `value-${n}` })

async function rounds(kafka, settings) {
  const producer = producerOf(kafka, settings)
  await producer.connect()
  for (const { first, end, commit, offset } of settings.rounds) {
    const transaction = await producer.transaction()
    const messages = []
    for (let n = first; n < end; n += 1) messages.push(message(n))
    await transaction.send({ topic: settings.topic, messages })
    if (offset >= 0) {
      await transaction.sendOffsets({
        consumerGroupId: settings.group,
        topics: [{ topic: settings.source, partitions: [{ partition: 0, offset: String(offset) }] }],
      })
    }
    await (commit ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  return true
}

async function fenced(kafka, settings) {
  const [first, second] = [producerOf(kafka, settings), producerOf(kafka, settings)]
  await first.connect()
  const old = await first.transaction()
  await old.send({ topic: settings.topic, messages: [message(0)] })
  await second.connect()
  const next = await second.transaction()
  let met = 'nothing'
  try {
    await old.commit()
  } catch (error) {
    met = error.type
  }
  await next.send({ topic: settings.topic, messages: [message(1)] })
  await next.commit()
  await first.disconnect()
  await second.disconnect()
  return met
}

async function read(kafka, { topic, count, group }) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const values = []
  await new Promise((resolve) => consumer.run({
    eachMessage: async ({ message: { value } }) => {
      values.push(value.toString())
      if (values.length >= count) resolve()
    },
  }))
  await consumer.disconnect()
  return values
}

async function main() {
  const [step, text] = process.argv.slice(2)
  const settings = JSON.parse(text)
  const kafka = new Kafka({
    clientId: 'quire-test',
    brokers: settings.brokers.split(','),
    logLevel: logLevel.NOTHING,
  })
  console.log(JSON.stringify(await { rounds, fenced, read }[step](kafka, settings)))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})

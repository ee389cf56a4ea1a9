// @platformatic/kafka, unmodified: `node platformatic.mjs STEP SETTINGS` prints what came of a step as JSON.
import { Admin, Consumer, Producer, compatibilityPartitioner, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [step, text] = process.argv.slice(2)
const settings = JSON.parse(text)
const common = { clientId: 'quire-test', bootstrapBrokers: settings.brokers.split(',') }

async function create () {
  const admin = new Admin(common)
  await admin.createTopics({ topics: [settings.topic], partitions: settings.partitions, replicas: 1 })
  await admin.close()
  return true
}

async function publish () {
  const partitioner = settings.likeJava ? compatibilityPartitioner : undefined
  const producer = new Producer({ ...common, serializers: stringSerializers, partitioner, idempotent: true })
  const messages = settings.messages.map(one => ({ topic: settings.topic, ...one }))
  const compression = settings.compression ?? 'none'
  await producer.send({ messages, acks: -1, compression })
  await producer.close()
  return messages.length
}

async function group () {
  const consumer = new Consumer({ ...common, groupId: settings.group, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [settings.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  const found = []
  for await (const one of stream) {
    found.push({ partition: one.partition, offset: Number(one.offset), key: one.key, value: one.value })
    await one.commit()
    if (found.length === settings.count) break
  }
  await stream.close()
  await consumer.close()
  return found
}

const result = await { create, publish, group }[step]()
console.log(JSON.stringify(result))
process.exit(0)

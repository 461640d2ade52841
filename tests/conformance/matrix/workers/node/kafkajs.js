// KafkaJS as a worker: it does what it is told on standard input (see ../../remote.py for the vocabulary). Every
// setting is the client's default, but where to begin, what its documentation asks of a transactional producer,
// and what a request names.
"use strict";

const { randomUUID } = require("node:crypto");
const { createInterface } = require("node:readline");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka } = require("kafkajs");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const complain = (what) => process.stderr.write(`${what}\n`);
const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);

const kafka = new Kafka({
  brokers: process.argv[2].split(","),
  logCreator: () => ({ namespace, label, log }) => complain(`${label} ${namespace}: ${JSON.stringify(log)}`),
});
const admin = kafka.admin();
const opened = new Map();

class Producer {
  constructor({ codec, idempotent, transactional }) {
    const exact = transactional === null ? {} : { transactionalId: transactional, maxInFlightRequests: 1 };
    this.compression = CODECS[codec];
    this.client = kafka.producer({ idempotent, ...exact });
    this.transaction = null;
    this.underWay = new Set();
    this.failed = null;
  }

  /** Hand it over; nobody waits for it here, as the client keeps no records back to send them together. */
  send({ topic, key, value, headers, timestamp, token }) {
    const grouped = {};
    for (const [name, content] of headers) {
      (grouped[name] ??= []).push(content);
    }
    const at = timestamp === null ? {} : { timestamp: String(timestamp) };
    const sent = (this.transaction ?? this.client)
      .send({ topic, compression: this.compression, messages: [{ key, value, headers: grouped, ...at }] })
      .then(() => say({ acked: token }))
      .catch((error) => {
        this.failed ??= error;
        complain(error.stack);
      })
      .finally(() => this.underWay.delete(sent));
    this.underWay.add(sent);
  }

  async settled() {
    await Promise.all(this.underWay);
  }

  async begin() {
    this.failed = null;
    this.transaction = await this.client.transaction();
  }

  async commit() {
    await this.settled();
    if (this.failed) {
      throw this.failed;
    }
    await this.transaction.commit();
  }

  async abort() {
    await this.settled();
    await this.transaction.abort();
  }

  async close() {
    await this.settled();
    await this.client.disconnect();
  }
}

/** The client hands over one record at a time, and goes on when it was polled. */
class Consumer {
  constructor({ topic, group, level }) {
    this.topic = topic;
    this.isMember = group !== null;
    // It reads in groups only: a reader is alone in one.
    this.client = kafka.consumer({
      groupId: group ?? `reader-${randomUUID()}`,
      readUncommitted: level === "read_uncommitted",
    });
    this.has = new Set();
    this.next = new Map(); // the first offset that was not polled, of each partition that it has
    this.offered = null;
    this.arrived = () => {};
    this.closing = false;
    const { CRASH, GROUP_JOIN, REBALANCING } = this.client.events;
    this.client.on(GROUP_JOIN, ({ payload }) => this.assigned(payload.memberAssignment[topic] ?? []));
    this.client.on(REBALANCING, () => this.has.clear());
    this.client.on(CRASH, () => this.has.clear());
  }

  async open() {
    await this.client.connect();
    await this.client.subscribe({ topics: [this.topic], fromBeginning: true });
    // It returns when it has joined, which takes until the members that are there are polled.
    this.client.run({ eachMessage: (given) => this.offer(given) }).catch((error) => complain(error.stack));
  }

  assigned(partitions) {
    this.has = new Set(partitions);
    for (const partition of this.isMember ? [...this.next.keys()] : []) {
      if (!this.has.has(partition)) {
        this.next.delete(partition);
      }
    }
  }

  offer({ partition, message }) {
    // Who is no member was assigned its partitions, and is told nothing twice.
    if (!this.isMember && Number(message.offset) < (this.next.get(partition) ?? 0)) {
      return undefined;
    }
    return new Promise((taken, refused) => {
      if (this.closing) {
        refused(new Error("it is being closed"));
        return;
      }
      this.offered = { partition, message, taken, refused };
      this.arrived();
    });
  }

  async take(wait_ms) {
    if (this.offered === null) {
      await new Promise((arrived) => {
        const timer = setTimeout(arrived, wait_ms);
        this.arrived = () => {
          clearTimeout(timer);
          arrived();
        };
      });
    }
    const found = this.offered;
    this.offered = null;
    found?.taken();
    return found;
  }

  async poll() {
    const records = [];
    while (records.length < 500) {
      const found = await this.take(records.length ? 10 : 200);
      if (found === null) {
        break;
      }
      const { partition, message } = found;
      const offset = Number(message.offset);
      this.next.set(partition, Math.max(this.next.get(partition) ?? 0, offset + 1));
      records.push({
        partition,
        offset,
        timestamp: Number(message.timestamp),
        key: message.key === null ? null : message.key.toString(),
        value: message.value === null ? null : message.value.toString(),
        headers: Object.entries(message.headers ?? {}).flatMap(([name, contents]) =>
          [contents].flat().map((content) => [name, content.toString()]),
        ),
      });
    }
    return { records, assignment: [...this.has] };
  }

  async commit() {
    if (!this.has.size) {
      throw new Error("between two generations");
    }
    const places = [...this.next].filter(([partition]) => this.has.has(partition));
    await this.client.commitOffsets(
      places.map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) })),
    );
  }

  /** A record that nobody has polled is refused, so that it is not committed. */
  async close() {
    this.closing = true;
    this.offered?.refused(new Error("it is being closed"));
    await this.client.disconnect();
  }
}

const placed = (found, partition) => found.find((one) => one.partition === partition);
const resource = (topic) => ({ type: ConfigResourceTypes.TOPIC, name: topic });

const DONE = {
  create: ({ topic, partitions }) =>
    admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 3 }] }),
  delete: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  async topics() {
    const { topics } = await admin.fetchTopicMetadata();
    return Object.fromEntries(topics.map(({ name, partitions }) => [name, partitions.length]));
  },
  async config({ topic, name }) {
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource(topic)] });
    return resources[0].configEntries.find((one) => one.configName === name).configValue;
  },
  "set-config": ({ topic, name, value }) =>
    admin.alterConfigs({ resources: [{ ...resource(topic), configEntries: [{ name, value }] }] }),
  async ends({ topic, partition }) {
    const { low, high } = placed(await admin.fetchTopicOffsets(topic), partition);
    return [Number(low), Number(high)];
  },
  "offset-at": async ({ topic, partition, timestamp }) =>
    Number(placed(await admin.fetchTopicOffsetsByTimestamp(topic, timestamp), partition).offset),
  groups: async () => (await admin.listGroups()).groups.map(({ groupId }) => groupId),
  "group-state": async ({ group }) => (await admin.describeGroups([group])).groups[0].state,
  async committed({ group, topic, partition }) {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    return Number(placed(partitions, partition).offset);
  },
  async producer(given) {
    const made = new Producer(given);
    await made.client.connect();
    opened.set(given.name, made);
  },
  send: async (given) => opened.get(given.name).send(given),
  flush: ({ name }) => opened.get(name).settled(),
  begin: ({ name }) => opened.get(name).begin(),
  "commit-transaction": ({ name }) => opened.get(name).commit(),
  abort: ({ name }) => opened.get(name).abort(),
  async consumer(given) {
    const made = new Consumer(given);
    await made.open();
    opened.set(given.name, made);
  },
  poll: ({ name }) => opened.get(name).poll(),
  commit: ({ name }) => opened.get(name).commit(),
  close: ({ name }) => opened.get(name).close(),
};

async function answer(line) {
  const { id, do: what, ...given } = JSON.parse(line);
  try {
    say({ id, ok: (await DONE[what](given)) ?? null });
  } catch (error) {
    say({ id, error: `${error.name}: ${error.message}` });
  }
}

process.on("unhandledRejection", (error) => complain(`unhandled: ${error?.stack ?? error}`));
createInterface({ input: process.stdin })
  .on("line", answer)
  .on("close", () => process.exit(0));

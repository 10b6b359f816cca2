// What `queue.stats` says of a queue, summed up, and the rates between two answers.

import { parseDuration } from "./format.js";

const ORDER = ["error", "unavailable", "failing", "paused", "draining"]; // the worst first
const KINDS = { available: "good", failing: "bad", unavailable: "bad", error: "bad", paused: "warn", draining: "warn" };
const SPAN_MS = 10 * 60_000;
const REMEMBERED = 20; // queues with a time line

export function stateKind(state) {
  return KINDS[state] ?? "plain";
}

/** One queue in numbers. */
export function sumUp(stats) {
  const sum = {
    ready: 0, leased: 0, scheduled: 0, outbox: 0, failures: 0, oldestMs: 0, averageMs: 0,
    reserves: 0, produces: 0, completes: 0, inFlight: 0, partitions: [],
    partial: Boolean(stats.partial), missing: stats.missing ?? [],
  };
  let items = 0;
  for (const logicalQueue of stats.logicalQueues ?? []) {
    sum.reserves += logicalQueue.lease_waiting ?? 0;
    sum.produces += logicalQueue.produce_waiting ?? 0;
    sum.completes += logicalQueue.complete_waiting ?? 0;
    sum.inFlight += logicalQueue.in_flight ?? 0;
    for (const partition of logicalQueue.partitions ?? []) {
      const total = partition.total ?? 0;
      sum.ready += partition.ready ?? 0;
      sum.leased += partition.total_leased ?? 0;
      sum.scheduled += partition.scheduled ?? 0;
      sum.outbox += partition.outbox ?? 0;
      sum.failures += partition.failures ?? 0;
      sum.oldestMs = Math.max(sum.oldestMs, parseDuration(partition.oldest_age));
      sum.averageMs += parseDuration(partition.average_age) * total;
      items += total;
      sum.partitions.push(partition);
    }
  }
  sum.averageMs = items ? sum.averageMs / items : 0;
  return sum;
}

/** The state of a queue in a word or two, and its colour. */
export function queueState(info, sum) {
  for (const state of ORDER) {
    const among = sum.partitions.filter((partition) => partition.state === state).length;
    if (among) return { text: sum.partitions.length === 1 ? state : `${among}/${sum.partitions.length} ${state}`, kind: stateKind(state) };
  }
  if (sum.partial) return { text: "partial", kind: "warn" };
  if (info.produce_paused && info.reserve_paused) return { text: "paused", kind: "warn" };
  if (info.produce_paused) return { text: "produce paused", kind: "warn" };
  if (info.reserve_paused) return { text: "reserve paused", kind: "warn" };
  return { text: "available", kind: "good" };
}

/** Rates from the counts of two answers. A partition that changed its owner counts anew. */
export class Rates {
  #last = new Map();

  /** Items per second that came and that were completed since the last answer; null the first time. */
  next(queueName, sum, nowMs) {
    const before = this.#last.get(queueName);
    const counts = new Map(sum.partitions.map((each) => [each.partition ?? 0, each]));
    this.#last.set(queueName, { counts, nowMs });
    if (!before || nowMs <= before.nowMs) return { arrived: null, completed: null };
    const perSecond = (field) => {
      let items = 0;
      for (const [number, now] of counts) {
        const then = before.counts.get(number);
        if (!then) continue;
        const [past, present] = [then[field] ?? 0, now[field] ?? 0];
        items += present >= past && then.epoch === now.epoch ? present - past : present;
      }
      return (items * 1000) / (nowMs - before.nowMs);
    };
    return { arrived: perSecond("arrived"), completed: perSecond("completed") };
  }

  keep(queueNames) {
    for (const name of this.#last.keys()) if (!queueNames.has(name)) this.#last.delete(name);
  }
}

const timeLines = new Map();

/** The last minutes of a queue, which stay while other pages are looked at. */
export function timeLine(queueName) {
  const line = timeLines.get(queueName) ?? [];
  timeLines.delete(queueName);
  timeLines.set(queueName, line);
  if (timeLines.size > REMEMBERED) timeLines.delete(timeLines.keys().next().value);
  return line;
}

export function addPoint(line, point) {
  line.push(point);
  while (line.length && line[0].atMs < point.atMs - SPAN_MS) line.shift();
}

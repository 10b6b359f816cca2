// The page of one queue: its numbers, its last minutes, its partitions, its items, its settings, and what can be done.

import { call, explain, poll } from "./calls.js";
import { confirm } from "./confirm.js";
import { badge, h, setBadge, setChildren, setClass, setText } from "./dom.js";
import { UNKNOWN, age, count, instant, plural, rate } from "./format.js";
import { Items } from "./items.js";
import { Partitions } from "./partitions.js";
import { Plot } from "./plot.js";
import { queueLink } from "./queues.js";
import { Rates, addPoint, queueState, sumUp, timeLine } from "./stats.js";

const EVERY_MS = 2000;

const FIGURES = [
  { label: "Ready", show: ({ sum }) => count(sum.ready) },
  { label: "Leased", show: ({ sum }) => count(sum.leased) },
  { label: "Scheduled", show: ({ sum }) => count(sum.scheduled) },
  { label: "In/s", show: ({ rates }) => rate(rates.arrived) },
  { label: "Out/s", show: ({ rates }) => rate(rates.completed) },
  { label: "Oldest", show: ({ sum }) => age(sum.oldestMs) },
  { label: "Average age", show: ({ sum }) => age(sum.averageMs) },
  { label: "Waiting reserves", show: ({ sum }) => count(sum.reserves) },
  { label: "Waiting produces", show: ({ sum }) => count(sum.produces) },
  { label: "Failed commits", show: ({ sum }) => count(sum.failures) },
];

function settings(info) {
  const policy = info.retry_policy ?? {};
  const backoff = policy.base && policy.base !== "0s"
    ? `${policy.base} × ${policy.factor ?? 1}, at most ${policy.max || "0s"}, jitter ${policy.jitter ?? 0}`
    : "at once";
  const dead = info.dead_queue ? h("a", { href: queueLink(info.dead_queue) }, info.dead_queue) : "none";
  return [
    ["Namespace", info.namespace || UNKNOWN],
    ["Lease timeout", info.lease_timeout || UNKNOWN],
    ["Expire timeout", info.expire_timeout && info.expire_timeout !== "0s" ? info.expire_timeout : "never"],
    ["Max attempts", info.max_attempts ? count(info.max_attempts) : "no limit"],
    ["Dead queue", dead],
    ["Retry", backoff],
    ["Partitions asked for", count(info.requested_partitions ?? 0)],
    ["Logical queues", info.logical_queues || "auto"],
    ["Reference", info.reference || UNKNOWN],
    ["Created", instant(info.created_at)],
    ["Updated", instant(info.updated_at)],
  ];
}

class QueuePage {
  rates = new Rates();
  known = "";
  info = {};

  constructor(main, notice, frame, name) {
    this.name = name;
    this.frame = frame;
    this.state = badge(UNKNOWN);
    this.done = h("p", { class: "notice", role: "status" });
    this.produce = h("button", { type: "button", disabled: true, onclick: () => this.toggle("produce") }, "Pause produce");
    this.reserve = h("button", { type: "button", disabled: true, onclick: () => this.toggle("reserve") }, "Pause reserve");
    this.wipe = h("button", { type: "button", disabled: true, class: "danger-text", onclick: () => this.clear() }, "Clear…");
    this.figures = FIGURES.map(() => h("dd", {}, UNKNOWN));
    this.flow = new Plot("Items per second", [{ value: "arrived", label: "in" }, { value: "completed", label: "out" }]);
    this.held = new Plot("Items", [{ value: "ready", label: "ready" }, { value: "leased", label: "leased" }]);
    this.items = new Items(name, frame.signal);
    this.partitions = new Partitions((number) => this.look(number));
    this.settings = h("dl", { class: "settings" });
    this.draw(main, notice);
    this.again = poll(() => this.read(), () => EVERY_MS, frame.signal, (error) => frame.failed(error));
  }

  draw(main, notice) {
    const figures = FIGURES.map(({ label }, i) => h("div", {}, h("dt", {}, label), this.figures[i]));
    main.append(
      h("p", { class: "crumb" }, h("a", { href: "#/queues" }, "← Queues")),
      h("div", { class: "title" }, h("h1", { class: "name" }, this.name), this.state, notice),
      h("div", { class: "actions" }, this.produce, this.reserve, this.wipe, this.done),
      h("dl", { class: "figures" }, figures),
      h("div", { class: "plots" }, this.flow.element, this.held.element),
      this.partitions.element,
      this.items.element,
      h("section", { "aria-labelledby": "settings-title" }, h("h2", { id: "settings-title" }, "Settings"), this.settings),
    );
  }

  async read() {
    const { signal } = this.frame;
    const asked = { queue_name: this.name };
    const [info, stats] = await Promise.all([call("queues.info", asked, signal), call("queue.stats", asked, signal)]);
    this.info = info;
    const nowMs = performance.now();
    const sum = sumUp(stats);
    const rates = this.rates.next(this.name, sum, nowMs);
    const line = timeLine(this.name);
    addPoint(line, { atMs: nowMs, ready: sum.ready, leased: sum.leased, ...rates });
    FIGURES.forEach(({ show }, i) => setText(this.figures[i], show({ sum, rates })));
    this.flow.draw(line, nowMs);
    this.held.draw(line, nowMs);
    this.partitions.draw(info.partitions ?? []);
    this.tell(info, sum);
  }

  tell(info, sum) {
    const state = queueState(info, sum);
    setBadge(this.state, state.text, state.kind);
    this.label(this.produce, "produce", info.produce_paused);
    this.label(this.reserve, "reserve", info.reserve_paused);
    this.wipe.disabled = false;
    const told = JSON.stringify([info.updated_at, info.retry_policy, info.dead_queue]);
    if (told !== this.known) {
      this.known = told;
      setChildren(this.settings, settings(info).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    }
    const missing = sum.missing.length ? `: no answer from ${sum.missing.join(", ")}` : "";
    this.frame.answered(sum.partial ? `totals are not whole${missing}` : plural((info.partitions ?? []).length, "partition"));
  }

  label(button, way, paused) {
    button.disabled = false;
    setText(button, `${paused ? "Resume" : "Pause"} ${way}`);
  }

  look(number) {
    this.partitions.press(number);
    void this.items.open(number);
  }

  async toggle(way) {
    const paused = Boolean(this.info[`${way}_paused`]);
    const what = way === "produce" ? "Producers" : "Consumers";
    const text = paused
      ? `${what} are served again.`
      : `${what} of this queue are refused until it is resumed. Items that are leased can be completed.`;
    const action = paused ? "Resume" : "Pause";
    const title = `${action} ${way} of ${this.name}?`;
    if (!(await confirm({ title, text, action: `${action} ${way}` }))) return;
    await this.act(paused ? "queue.resume" : "queue.pause", { [way]: true }, `${way} ${paused ? "resumed" : "paused"}`);
  }

  async clear() {
    const boxes = [
      { name: "queue", label: "items that are ready", checked: true },
      { name: "scheduled", label: "scheduled items", checked: false },
      { name: "destructive", label: "leased items too: their consumers cannot complete them", checked: false },
    ];
    const text = "What is cleared is gone: it goes to no dead queue.";
    const chosen = await confirm({ title: `Clear ${this.name}?`, text, action: "Clear", danger: true, boxes });
    if (chosen) await this.act("queue.clear", chosen, "cleared");
  }

  async act(name, fields, told) {
    try {
      await call(name, { queue_name: this.name, ...fields }, this.frame.signal);
      setText(this.done, told);
      setClass(this.done, "notice");
    } catch (error) {
      if (this.frame.signal.aborted) return;
      setText(this.done, explain(error));
      setClass(this.done, "notice failed");
    }
    this.again();
  }
}

export function showQueue(main, notice, frame, name) {
  new QueuePage(main, notice, frame, name);
}

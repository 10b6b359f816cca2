// The page of all queues. All names are known; only the rows that are seen are asked for, again and again.

import { call, each, poll } from "./calls.js";
import { badge, h, setBadge, setChildren, setClass, setText } from "./dom.js";
import { UNKNOWN, age, count, plural, rate } from "./format.js";
import { Rates, queueState, sumUp } from "./stats.js";

const PER_PAGE = 50;
const STATS_MS = 2000;
const NAMES_MS = 3000;
const MANY_NAMES_MS = 10_000;
const MANY = 200;
const SWEEP_MS = 15_000;
const AT_ONCE = 4;
const LIST_LIMIT = 1000;
const MOST_QUEUES = 10_000;

const COLUMNS = [
  { key: "name", label: "Queue", live: false },
  { key: "state", label: "State", live: true },
  { key: "ready", label: "Ready", live: true, show: (row) => count(row.sum.ready) },
  { key: "leased", label: "Leased", live: true, show: (row) => count(row.sum.leased) },
  { key: "scheduled", label: "Scheduled", live: true, show: (row) => count(row.sum.scheduled) },
  { key: "arrived", label: "In/s", live: true, show: (row) => rate(row.rates.arrived) },
  { key: "completed", label: "Out/s", live: true, show: (row) => rate(row.rates.completed) },
  { key: "oldestMs", label: "Oldest", live: true, show: (row) => age(row.sum.oldestMs) },
  { key: "averageMs", label: "Average age", live: true, show: (row) => age(row.sum.averageMs) },
];
const NUMBERS = COLUMNS.slice(2);

export function queueLink(name) {
  return `#/queue/${encodeURIComponent(name)}`;
}

/** One queue in the table; its elements stay while what they show changes. */
class Row {
  sum = null;
  rates = { arrived: null, completed: null };

  constructor(info) {
    this.info = info;
    this.place = h("span", { class: "namespace" });
    this.state = badge(UNKNOWN);
    this.cells = NUMBERS.map((column) => h("td", { class: "number", "data-label": column.label }, UNKNOWN));
    const name = h("th", { scope: "row" }, h("a", { href: queueLink(info.queue_name) }, info.queue_name), this.place);
    this.element = h("tr", {}, name, h("td", { class: "state" }, this.state), this.cells);
    this.tell(info);
  }

  tell(info) {
    this.info = info;
    setText(this.place, info.namespace ?? "");
    if (this.sum) this.draw();
  }

  draw() {
    const state = queueState(this.info, this.sum);
    setBadge(this.state, state.text, state.kind);
    NUMBERS.forEach((column, i) => setText(this.cells[i], column.show(this)));
    setClass(this.element, this.sum.partial ? "partial" : "");
    this.element.title = this.sum.partial ? "Some partitions did not tell what they hold: the totals are not whole." : "";
  }

  fail(error) {
    setBadge(this.state, error.code ? `${error.code}: try again` : "no answer", "bad");
    setClass(this.element, "old");
    this.element.title = error.message;
  }

  value(key) {
    if (key === "name") return this.info.queue_name;
    if (key === "state") return this.state.textContent;
    if (key in this.rates) return this.rates[key] ?? -1;
    return this.sum ? this.sum[key] : -1;
  }
}

class QueuesPage {
  rows = new Map();
  order = [];
  first = 0;
  sort = { key: "name", down: false };
  rates = new Rates();
  full = true;

  constructor(main, notice, frame) {
    this.frame = frame;
    this.body = h("tbody");
    this.filter = h("input", { type: "search", placeholder: "part of a name", autocomplete: "off", spellcheck: "false" });
    this.namespace = h("input", { type: "search", placeholder: "any", autocomplete: "off", spellcheck: "false" });
    this.range = h("span", { class: "range", role: "status" });
    this.back = h("button", { type: "button", onclick: () => this.turn(-PER_PAGE) }, "Previous");
    this.next = h("button", { type: "button", onclick: () => this.turn(PER_PAGE) }, "Next");
    this.heads = COLUMNS.map((column) => this.head(column));
    this.empty = h("p", { class: "empty", hidden: true });
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Queues"), notice),
      h(
        "div",
        { class: "tools" },
        h("label", {}, "Filter", this.filter),
        h("label", {}, "Namespace", this.namespace),
        h("div", { class: "pager" }, this.range, this.back, this.next),
      ),
      h(
        "table",
        { class: "queues" },
        h("caption", { class: "hidden" }, "Queues with what they hold"),
        h("thead", {}, h("tr", {}, this.heads)),
        this.body,
      ),
      this.empty,
    );
    this.start();
  }

  start() {
    const { signal } = this.frame;
    const failed = (error) => this.frame.failed(error);
    this.pollStats = poll(() => this.readStats(this.shown(), AT_ONCE + 2), () => STATS_MS, signal, failed);
    this.pollNames = poll(() => this.readNames(), () => (this.rows.size > MANY ? MANY_NAMES_MS : NAMES_MS), signal, failed);
    this.pollAll = poll(() => this.sweep(), () => SWEEP_MS, signal, failed);
    this.filter.addEventListener("input", () => this.fromStart());
    this.namespace.addEventListener("input", () => this.pollNames());
  }

  head(column) {
    const button = h("button", { type: "button", onclick: () => this.sortBy(column) }, column.label);
    const cell = h("th", { scope: "col", class: NUMBERS.includes(column) ? "number" : "" }, button);
    if (column.key === this.sort.key) cell.setAttribute("aria-sort", "ascending");
    return cell;
  }

  sortBy(column) {
    const down = this.sort.key === column.key ? !this.sort.down : NUMBERS.includes(column);
    this.sort = { key: column.key, down };
    this.heads.forEach((head, i) => {
      if (COLUMNS[i] === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.fromStart();
    if (column.live) this.pollAll();
  }

  turn(by) {
    this.first = Math.max(0, Math.min(this.first + by, this.order.length - 1));
    this.draw();
    this.pollStats();
  }

  fromStart() {
    this.first = 0;
    this.arrange();
    this.pollStats();
  }

  /** The rows in order. It holds still between two sweeps, so that rows do not jump while they are read. */
  arrange() {
    const wanted = this.filter.value.trim().toLowerCase();
    const { key, down } = this.sort;
    const rows = [...this.rows.values()].filter((row) => row.info.queue_name.toLowerCase().includes(wanted));
    const byName = (a, b) => (a.info.queue_name < b.info.queue_name ? -1 : 1);
    rows.sort((a, b) => {
      const [x, y] = [a.value(key), b.value(key)];
      if (x === y) return byName(a, b);
      return x < y === down ? 1 : -1;
    });
    this.order = rows;
    this.first = Math.min(this.first, Math.max(0, Math.floor((rows.length - 1) / PER_PAGE) * PER_PAGE));
    this.draw();
  }

  shown() {
    return this.order.slice(this.first, this.first + PER_PAGE);
  }

  draw() {
    const shown = this.shown();
    setChildren(this.body, shown.map((row) => row.element));
    const last = this.first + shown.length;
    setText(this.range, shown.length ? `${this.first + 1}–${last} of ${count(this.order.length)}` : "none");
    this.back.disabled = this.first === 0;
    this.next.disabled = last >= this.order.length;
    this.empty.hidden = shown.length > 0;
    const filtered = this.filter.value.trim() || this.namespace.value.trim();
    const advice = "There is no queue yet. Create one with: querator create mail";
    setText(this.empty, filtered ? "No queue fits the filter." : advice);
  }

  async readNames() {
    const infos = await this.readAll(this.namespace.value.trim());
    const names = new Set(infos.map((info) => info.queue_name));
    for (const name of this.rows.keys()) if (!names.has(name)) this.rows.delete(name);
    for (const info of infos) {
      const row = this.rows.get(info.queue_name);
      if (row) row.tell(info);
      else this.rows.set(info.queue_name, new Row(info));
    }
    this.rates.keep(names);
    const told = plural(infos.length, "queue");
    this.frame.answered(this.full ? told : `the first ${told}; a namespace shows fewer`);
    this.arrange();
    this.pollStats();
  }

  async readAll(namespace) {
    const infos = [];
    let pivot = "";
    this.full = true;
    for (;;) {
      const answer = await call("queues.list", { pivot, limit: LIST_LIMIT, namespace }, this.frame.signal);
      const items = answer.items ?? [];
      infos.push(...(pivot && items[0]?.queue_name === pivot ? items.slice(1) : items));
      if (items.length < LIST_LIMIT) return infos;
      this.full = infos.length < MOST_QUEUES;
      if (!this.full) return infos;
      pivot = items.at(-1).queue_name;
    }
  }

  /** Ask for what these rows show. A queue that fails is told in its row; a server that is gone is told once. */
  async readStats(rows, atOnce) {
    const { signal } = this.frame;
    let answered = rows.length === 0;
    let lost = null;
    await each(rows, atOnce, signal, async (row) => {
      if (lost) return;
      try {
        const name = row.info.queue_name;
        row.sum = sumUp(await call("queue.stats", { queue_name: name }, signal));
        row.rates = this.rates.next(name, row.sum, performance.now());
        row.draw();
        answered = true;
      } catch (error) {
        if (signal.aborted) throw error;
        if (error.code === 0) lost = error;
        else answered = true;
        row.fail(error);
      }
    });
    if (lost) throw lost;
    if (answered && rows.length) this.frame.answered();
  }

  /** Sorted by what changes, every queue is asked for, slowly; then the order is made anew. */
  async sweep() {
    if (!COLUMNS.find((column) => column.key === this.sort.key).live) return;
    const seen = new Set(this.shown());
    await this.readStats(this.order.filter((row) => !seen.has(row)), AT_ONCE);
    this.arrange();
  }
}

export function showQueues(main, notice, frame) {
  new QueuesPage(main, notice, frame);
}

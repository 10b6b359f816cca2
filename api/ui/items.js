// Looks into one partition: its items, page by page. A payload is shown when somebody asks for it.

import { call, explain } from "./calls.js";
import { badge, h, setChildren, setText } from "./dom.js";
import { UNKNOWN, instant, size } from "./format.js";

const PER_PAGE = 10;
const MOST_TEXT = 4000;

function decode(payload) {
  const bytes = Uint8Array.from(atob(payload ?? ""), (letter) => letter.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return Array.from(bytes.slice(0, MOST_TEXT / 8), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
}

function payloadSize(payload) {
  const text = payload ?? "";
  return (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
}

function state(item, scheduled) {
  if (scheduled) return [badge("scheduled", "plain"), ` until ${instant(item.enqueue_at)}`];
  if (item.is_leased) return [badge("leased", "lead"), ` until ${instant(item.lease_deadline)}`];
  return [badge("ready", "good")];
}

function facts(item) {
  const tried = item.max_attempts ? `${item.attempts ?? 0} of ${item.max_attempts}` : String(item.attempts ?? 0);
  const known = [
    ["created", instant(item.created_at)],
    ["attempts", tried],
    ["kind", item.kind],
    ["encoding", item.encoding],
    ["reference", item.reference],
    ["expires", item.expire_deadline ? instant(item.expire_deadline) : ""],
    ["origin", item.source_id],
  ];
  return known.filter(([, value]) => value && value !== UNKNOWN).map(([name, value]) => h("span", {}, h("i", {}, name), ` ${value}`));
}

function drawItem(item, scheduled) {
  const text = h("pre", { hidden: true, tabindex: "0", "aria-label": `Payload of ${item.id}` });
  const show = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, "Show payload");
  show.addEventListener("click", () => {
    const open = text.hidden;
    if (open) {
      const whole = decode(item.payload);
      text.textContent = whole.length > MOST_TEXT ? `${whole.slice(0, MOST_TEXT)} …` : whole || "(empty)";
    }
    text.hidden = !open;
    show.setAttribute("aria-expanded", String(open));
    setText(show, open ? "Hide payload" : "Show payload");
  });
  const head = h("div", { class: "head" }, h("code", {}, item.id), h("span", {}, state(item, scheduled)));
  const foot = h("div", { class: "foot" }, h("span", { class: "size" }, size(payloadSize(item.payload))), show);
  return h("li", { class: "item" }, head, h("div", { class: "facts" }, facts(item)), foot, text);
}

export class Items {
  #partition = null;
  #scheduled = false;
  #pivots = [""];

  constructor(queueName, signal) {
    this.queueName = queueName;
    this.signal = signal;
    this.title = h("h2", { id: "items-title", tabindex: "-1" }, "Items");
    this.kinds = [
      h("button", { type: "button", "aria-pressed": "true", onclick: () => this.#choose(false) }, "Ready and leased"),
      h("button", { type: "button", "aria-pressed": "false", onclick: () => this.#choose(true) }, "Scheduled"),
    ];
    this.status = h("p", { class: "notice", role: "status" }, "Choose a partition above to look at its items.");
    this.list = h("ul", { class: "items" });
    this.first = h("button", { type: "button", disabled: true, onclick: () => this.#turn([""]) }, "First page");
    this.next = h("button", { type: "button", disabled: true, onclick: () => this.#turn([...this.#pivots, this.pivot]) }, "Next page");
    const again = h("button", { type: "button", onclick: () => this.#read() }, "Read again");
    this.tools = h("div", { class: "tools", hidden: true }, h("div", { class: "pair", role: "group", "aria-label": "Which items" }, this.kinds), h("div", { class: "pager" }, again, this.first, this.next));
    this.element = h("section", { "aria-labelledby": "items-title" }, this.title, this.status, this.tools, this.list);
  }

  /** Look into this partition. */
  async open(partition) {
    this.#partition = partition;
    this.tools.hidden = false;
    setText(this.title, `Items of partition ${partition}`);
    await this.#turn([""]);
    this.title.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  async #choose(scheduled) {
    this.#scheduled = scheduled;
    this.kinds.forEach((button, i) => button.setAttribute("aria-pressed", String(Boolean(i) === scheduled)));
    await this.#turn([""]);
  }

  async #turn(pivots) {
    this.#pivots = pivots;
    await this.#read();
  }

  async #read() {
    const [partition, scheduled, pivot] = [this.#partition, this.#scheduled, this.#pivots.at(-1)];
    const name = scheduled ? "storage/scheduled.list" : "storage/items.list";
    try {
      const answer = await call(name, { queue_name: this.queueName, partition, pivot, limit: PER_PAGE + 1 }, this.signal);
      if (partition !== this.#partition || scheduled !== this.#scheduled || pivot !== this.#pivots.at(-1)) return;
      this.#draw(answer.items ?? [], scheduled);
    } catch (error) {
      if (!this.signal.aborted) setText(this.status, explain(error));
    }
  }

  #draw(items, scheduled) {
    const shown = items.slice(0, PER_PAGE);
    this.pivot = items[PER_PAGE]?.id ?? "";
    this.first.disabled = this.#pivots.length === 1;
    this.next.disabled = !this.pivot;
    const start = (this.#pivots.length - 1) * PER_PAGE;
    const none = scheduled ? "No scheduled items here." : "No items here.";
    setText(this.status, shown.length ? `${start + 1}–${start + shown.length}, as of ${instant(new Date().toISOString())}` : none);
    setChildren(this.list, shown.map((item) => drawItem(item, scheduled)));
  }
}

// The partitions of a queue, drawn as tiles on their backends.

import { badge, h, setBadge, setChildren, setClass, setText } from "./dom.js";
import { count, plural } from "./format.js";
import { stateKind } from "./stats.js";

const FIRST = 96; // tiles before somebody asks for all
const COLOURS = 6;

class Tile {
  constructor(number, choose) {
    this.state = badge("", "plain");
    this.ready = h("b");
    this.leased = h("b");
    this.scheduled = h("b");
    this.owner = h("span", { class: "owner" });
    this.more = h("span", { class: "more" });
    const counts = [["ready", this.ready], ["leased", this.leased], ["scheduled", this.scheduled]];
    this.element = h(
      "button",
      { type: "button", class: "tile", "aria-pressed": "false", title: "Look at the items", onclick: () => choose(number) },
      h("span", { class: "top" }, h("span", { class: "name" }, `Partition ${number}`), this.state),
      h("span", { class: "counts" }, counts.map(([label, value]) => h("span", {}, value, ` ${label}`))),
      h("span", { class: "bottom" }, this.owner, this.more),
    );
    this.item = h("li", {}, this.element);
  }

  draw(partition, colour) {
    const state = partition.state || "unknown";
    setBadge(this.state, state, stateKind(state));
    setClass(this.element, `tile ${stateKind(state)}`);
    setText(this.ready, count(partition.ready ?? 0));
    setText(this.leased, count(partition.leased ?? 0));
    setText(this.scheduled, count(partition.scheduled ?? 0));
    setText(this.owner, ownerName(partition));
    setClass(this.owner, `owner i${colour}`);
    const outbox = partition.outbox ? `, ${count(partition.outbox)} leaving` : "";
    setText(this.more, `logical queue ${partition.logical_queue ?? 0}, epoch ${partition.epoch ?? 0}${outbox}`);
  }
}

export function ownerName(partition) {
  return partition.address || (partition.instance ? partition.instance.slice(0, 12) : "no owner");
}

export class Partitions {
  #tiles = new Map();
  #groups = new Map();
  #all = false;
  #last = [];

  /** `choose` is told the number of the partition that somebody wants to look into. */
  constructor(choose) {
    this.choose = choose;
    this.groups = h("div", { class: "groups" });
    this.button = h("button", { type: "button", hidden: true, onclick: () => this.#showAll() });
    this.element = h("section", { "aria-labelledby": "partitions-title" }, h("h2", { id: "partitions-title" }, "Partitions"), this.groups, this.button);
  }

  #showAll() {
    this.#all = true;
    this.draw(this.#last);
  }

  press(number) {
    for (const [each, tile] of this.#tiles) tile.element.setAttribute("aria-pressed", String(each === number));
  }

  draw(partitions) {
    this.#last = partitions;
    const shown = this.#all ? partitions : partitions.slice(0, FIRST);
    const instances = [...new Set(partitions.map((each) => each.instance ?? ""))].sort();
    const byBackend = new Map();
    for (const partition of shown) {
      const number = partition.partition ?? 0;
      if (!this.#tiles.has(number)) this.#tiles.set(number, new Tile(number, this.choose));
      const tile = this.#tiles.get(number);
      tile.draw(partition, instances.indexOf(partition.instance ?? "") % COLOURS);
      const backend = partition.backend ?? "";
      byBackend.set(backend, [...(byBackend.get(backend) ?? []), tile.item]);
    }
    const groups = [...byBackend].map(([backend, tiles]) => this.#group(backend, tiles, partitions));
    setChildren(this.groups, groups);
    this.button.hidden = shown.length === partitions.length;
    setText(this.button, `Show all ${plural(partitions.length, "partition")}`);
  }

  #group(backend, tiles, partitions) {
    if (!this.#groups.has(backend)) {
      const list = h("ul", { class: "tiles" });
      const note = h("span", { class: "note" });
      const title = h("h3", {}, backend || "no backend", " ", note);
      this.#groups.set(backend, { list, note, element: h("div", { class: "group" }, title, list) });
    }
    const group = this.#groups.get(backend);
    const here = partitions.filter((each) => (each.backend ?? "") === backend).length;
    setText(group.note, plural(here, "partition"));
    setChildren(group.list, tiles);
    return group.element;
  }
}

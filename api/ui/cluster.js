// The page of the instances: who is there, who leads, who owns how much.

import { call, poll } from "./calls.js";
import { badge, h, setBadge, setChildren, setText } from "./dom.js";
import { UNKNOWN, age, count, plural } from "./format.js";

const EVERY_MS = 3000;
const OWNED_MS = 10_000;
const LIMIT = 1000;
const MOST_PAGES = 20;

const COLUMNS = [
  { key: "roles", label: "Role" },
  { key: "address", label: "Address" },
  { key: "host", label: "Host" },
  { key: "version", label: "Version" },
  { key: "up", label: "Up for", number: true },
  { key: "logicalQueues", label: "Logical queues", number: true },
  { key: "partitions", label: "Partitions", number: true },
  { key: "backends", label: "Backends" },
];

/** Who owns what, page by page: instance → {logicalQueues, partitions}. What nobody owns is under "". */
async function readOwned(signal) {
  const owned = new Map();
  let pivot = "";
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const found = (await call("cluster.info", { pivot, limit: LIMIT }, signal)).logical_queues ?? [];
    for (const each of found) {
      if (`${each.queue_name}~${each.number ?? 0}` === pivot) continue;
      const counts = owned.get(each.instance ?? "") ?? { logicalQueues: 0, partitions: 0 };
      counts.logicalQueues += 1;
      counts.partitions += (each.partitions ?? []).length;
      owned.set(each.instance ?? "", counts);
    }
    if (found.length < LIMIT) return { owned, whole: true };
    pivot = `${found.at(-1).queue_name}~${found.at(-1).number ?? 0}`;
  }
  return { owned, whole: false };
}

class InstanceRow {
  constructor(id) {
    this.leader = badge("member");
    this.draining = badge("draining", "warn");
    this.cells = new Map(
      COLUMNS.map(({ key, label, number }) => [key, h("td", { class: number ? "number" : "", "data-label": label })]),
    );
    this.cells.get("roles").append(this.leader, this.draining);
    this.cells.get("roles").setAttribute("class", "state");
    this.element = h("tr", {}, h("th", { scope: "row", class: "id" }, id), ...this.cells.values());
  }

  draw(instance, owned) {
    const set = (key, text) => setText(this.cells.get(key), text);
    setBadge(this.leader, instance.leader ? "leader" : "member", instance.leader ? "lead" : "plain");
    this.draining.hidden = !instance.draining;
    set("address", (instance.addresses ?? []).join(", ") || UNKNOWN);
    set("host", instance.host || UNKNOWN);
    set("version", instance.version || UNKNOWN);
    set("up", instance.started_at ? age(Math.max(1, Date.now() - new Date(instance.started_at))) : UNKNOWN);
    set("backends", (instance.backends ?? []).join(", ") || UNKNOWN);
    const counts = owned?.get(instance.id) ?? { logicalQueues: 0, partitions: 0 };
    set("logicalQueues", owned ? count(counts.logicalQueues) : UNKNOWN);
    set("partitions", owned ? count(counts.partitions) : UNKNOWN);
  }
}

export function showCluster(main, notice, frame) {
  const rows = new Map();
  const body = h("tbody");
  const orphans = h("p", { class: "hint" });
  const head = ({ label, number }) => h("th", { scope: "col", class: number ? "number" : "" }, label);
  main.append(
    h("div", { class: "title" }, h("h1", {}, "Cluster"), notice),
    orphans,
    h(
      "table",
      { class: "instances" },
      h("caption", { class: "hidden" }, "Instances"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Instance"), COLUMNS.map(head))),
      body,
    ),
  );
  let latest = null;
  const read = async () => {
    const info = await call("cluster.info", { limit: 1 }, frame.signal);
    const instances = info.instances ?? [];
    for (const instance of instances) {
      if (!rows.has(instance.id)) rows.set(instance.id, new InstanceRow(instance.id));
      rows.get(instance.id).draw(instance, latest?.owned);
    }
    setChildren(body, instances.map((instance) => rows.get(instance.id).element));
    frame.answered(plural(instances.length, "instance") + (info.leader ? "" : ", no leader just now"));
  };
  const readAgain = poll(read, () => EVERY_MS, frame.signal, frame.failed);
  const readCounts = async () => {
    latest = await readOwned(frame.signal);
    const without = latest.owned.get("")?.partitions ?? 0;
    const told = without ? `${plural(without, "partition")} without an owner just now.` : "Every partition has an owner.";
    setText(orphans, latest.whole ? told : "Of very many queues, the first are counted.");
    readAgain();
  };
  poll(readCounts, () => OWNED_MS, frame.signal, frame.failed);
}

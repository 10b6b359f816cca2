// The page of the backends.

import { call, poll } from "./calls.js";
import { badge, h, setBadge, setChildren, setText } from "./dom.js";
import { count, plural } from "./format.js";

const EVERY_MS = 3000;

function makeRow() {
  const cells = {
    name: h("th", { scope: "row" }),
    driver: h("td", { "data-label": "Driver" }),
    affinity: h("td", { class: "number", "data-label": "Affinity" }),
    partitions: h("td", { class: "number", "data-label": "Partitions" }),
    details: h("td", { class: "details", "data-label": "Details" }),
  };
  const health = badge("", "plain");
  const { name, driver, affinity, partitions, details } = cells;
  return { cells, health, element: h("tr", {}, name, h("td", { class: "state" }, health), driver, affinity, partitions, details) };
}

function drawRow(row, backend) {
  setText(row.cells.name, backend.name);
  setText(row.cells.driver, backend.driver);
  setText(row.cells.affinity, backend.affinity ?? 0);
  setText(row.cells.partitions, count(backend.partitions ?? 0));
  setText(row.cells.details, backend.details || "–");
  setBadge(row.health, backend.healthy ? "healthy" : "not well", backend.healthy ? "good" : "bad");
}

export function showStorage(main, notice, frame) {
  const rows = new Map();
  const body = h("tbody");
  const heads = ["Backend", "Health", "Driver", "Affinity", "Partitions", "Details"];
  const head = (label) => h("th", { scope: "col", class: label === "Affinity" || label === "Partitions" ? "number" : "" }, label);
  main.append(
    h("div", { class: "title" }, h("h1", {}, "Storage"), notice),
    h("p", { class: "hint" }, "New partitions go to the backends in proportion to their affinity; 0 takes none."),
    h("table", { class: "backends" }, h("caption", { class: "hidden" }, "Backends"), h("thead", {}, h("tr", {}, heads.map(head))), body),
  );
  const read = async () => {
    const backends = (await call("storage.list", {}, frame.signal)).backends ?? [];
    for (const backend of backends) {
      if (!rows.has(backend.name)) rows.set(backend.name, makeRow());
      drawRow(rows.get(backend.name), backend);
    }
    setChildren(body, backends.map((backend) => rows.get(backend.name).element));
    const sick = backends.filter((backend) => !backend.healthy).length;
    frame.answered(plural(backends.length, "backend") + (sick ? `, ${sick} not well` : ""));
  };
  poll(read, () => EVERY_MS, frame.signal, frame.failed);
}

// Asks before something is changed.

import { h } from "./dom.js";

/**
 * Ask in a dialog; resolves to null if the answer is no, else to the values of the boxes.
 * `boxes` are `{name, label, checked}`.
 */
export function confirm({ title, text, action, danger = false, boxes = [] }) {
  const inputs = boxes.map((box) => h("input", { type: "checkbox", name: box.name, checked: box.checked }));
  const yes = h("button", { type: "submit", value: "yes", class: danger ? "danger" : "primary" }, action);
  const no = h("button", { type: "submit", value: "no", autofocus: true }, "Cancel");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "confirm-title" }, title),
    h("p", {}, text),
    boxes.map((box, i) => h("label", { class: "box" }, inputs[i], box.label)),
    h("div", { class: "buttons" }, no, yes),
  );
  const dialog = h("dialog", { "aria-labelledby": "confirm-title" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(inputs.map((input) => [input.name, input.checked]));
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? values : null);
    });
    dialog.showModal();
  });
}

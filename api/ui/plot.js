// A small time line of one or two series, drawn as SVG.

import { h, setText, svg } from "./dom.js";
import { count } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const SPANS_MS = [60_000, 120_000, 300_000, 600_000];
const GAP_MS = 10_000; // longer without an answer is a hole in the line

export class Plot {
  #lines;
  #grid = svg("path", { class: "grid", d: `M0 0.5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}` });
  #picture;
  #top = h("span", { class: "y top" });
  #middle = h("span", { class: "y middle" });
  #from = h("span", {});

  /** `series` are names of values of a point, with what they are called. */
  constructor(title, series) {
    this.series = series;
    this.title = title;
    this.#lines = series.map((_, index) => [svg("path", { class: `area s${index}` }), svg("path", { class: `line s${index}` })]);
    this.#picture = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.#grid,
      this.#lines.flat(),
    );
    const legend = series.map(({ label }, index) => h("span", { class: `key s${index}` }, label));
    this.element = h(
      "figure",
      { class: "plot" },
      h("figcaption", {}, h("span", {}, title), h("span", { class: "keys" }, legend)),
      h("div", { class: "canvas" }, this.#picture, this.#top, this.#middle),
      h("div", { class: "x" }, this.#from, h("span", {}, "now")),
    );
  }

  draw(points, nowMs) {
    const age = points.length ? nowMs - points[0].atMs : 0;
    const spanMs = SPANS_MS.find((span) => span >= age) ?? SPANS_MS.at(-1);
    const shown = points.filter((point) => point.atMs >= nowMs - spanMs);
    const top = niceTop(Math.max(1, ...shown.flatMap((point) => this.series.map(({ value }) => point[value] ?? 0))));
    const x = (point) => (WIDTH * (1 - (nowMs - point.atMs) / spanMs)).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1);
    this.series.forEach(({ value }, index) => {
      const runs = inRuns(shown.filter((point) => point[value] !== null && point[value] !== undefined));
      const drawn = runs.map((run) => run.map((point) => `${x(point)} ${y(point[value])}`).join("L"));
      const [area, line] = this.#lines[index];
      line.setAttribute("d", drawn.map((path) => `M${path}`).join(""));
      area.setAttribute(
        "d",
        runs.map((run, i) => `M${x(run[0])} ${HEIGHT}L${drawn[i]}L${x(run.at(-1))} ${HEIGHT}Z`).join(""),
      );
    });
    setText(this.#top, count(top));
    setText(this.#middle, count(top / 2));
    setText(this.#from, `${spanMs / 60_000} min ago`);
    const last = shown.at(-1) ?? {};
    const told = this.series.map(({ value, label }) => `${label} ${count(Math.round(last[value] ?? 0))}`).join(", ");
    this.#picture.setAttribute("aria-label", `${this.title}, now: ${told}; at most ${count(top)} on this scale`);
  }
}

/** The next of 2, 4, 10, 20, 40, 100, …: half of it is a whole number. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * power).find((top) => top >= value && top >= 2);
}

function inRuns(points) {
  const runs = [];
  for (const point of points) {
    const run = runs.at(-1);
    if (run && point.atMs - run.at(-1).atMs <= GAP_MS) run.push(point);
    else runs.push([point]);
  }
  return runs;
}

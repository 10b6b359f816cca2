// The frame: which page is shown, whether the server answers, and the theme.

import { explain } from "./calls.js";
import { setClass, setText } from "./dom.js";
import { showCluster } from "./cluster.js";
import { showQueue } from "./queue.js";
import { showQueues } from "./queues.js";
import { showStorage } from "./storage.js";

const PAGES = { queues: showQueues, queue: showQueue, storage: showStorage, cluster: showCluster };
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
let leaving = new AbortController();

/** Tell in the bar whether the server answers. */
function tellLink(error) {
  const lost = error !== null && error.code === 0;
  setClass(document.getElementById("link"), lost ? "link lost" : "link live");
  setText(document.getElementById("link-text"), lost ? "no answer" : "live");
  document.body.classList.toggle("stale", lost);
}

/**
 * What a page is given: where to draw, when to stop, and how to tell that an answer came or did not. A page's notice
 * is one line that is always there, so that nothing moves when something goes wrong.
 */
function makeFrame(notice) {
  let usual = "";
  return {
    signal: leaving.signal,
    answered(text = usual) {
      usual = text;
      tellLink(null);
      setText(notice, usual);
      setClass(notice, "notice");
    },
    failed(error) {
      tellLink(error);
      setText(notice, explain(error));
      setClass(notice, "notice failed");
    },
  };
}

function route() {
  const [, page = "", argument = ""] = location.hash.split("/");
  return { page: page in PAGES ? page : "queues", argument };
}

function decode(argument) {
  try {
    return decodeURIComponent(argument);
  } catch {
    return argument; // typed by hand; the server says that there is no such queue
  }
}

function show() {
  if (location.hash === "#main") return;
  const { page, argument } = route();
  leaving.abort();
  leaving = new AbortController();
  const notice = document.createElement("p");
  notice.setAttribute("class", "notice");
  notice.setAttribute("role", "status");
  notice.textContent = "loading";
  main.replaceChildren();
  PAGES[page](main, notice, makeFrame(notice), decode(argument));
  document.title = `${main.querySelector("h1")?.textContent ?? "Querator"} · Querator`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.page === page || (page === "queue" && link.dataset.page === "queues");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
}

function startTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const tell = () => setText(button, `Theme: ${root.dataset.theme ?? "auto"}`);
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("querator-theme", next);
    } catch {
      // A browser that keeps nothing has the theme until the page is left.
    }
    tell();
  });
  tell();
}

startTheme();
addEventListener("hashchange", () => {
  show();
  if (location.hash !== "#main") main.focus({ preventScroll: true });
});
show();

// Runs before the page is drawn, so that a chosen theme never flashes.
"use strict";
(() => {
  let chosen = "";
  try {
    chosen = localStorage.getItem("querator-theme") ?? "";
  } catch {
    chosen = ""; // a browser that keeps nothing follows the system
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

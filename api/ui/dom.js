// Makes and changes elements. Whatever comes from users goes in as text, never as markup.

/** An element with attributes, handlers (`onclick`) and children; a child that is no element becomes text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Change a text only where it differs, so that nothing is drawn again in vain. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

/** Put these children in place of the present ones; what has the focus keeps it. */
export function setChildren(parent, children) {
  const same = parent.childNodes.length === children.length && children.every((child, i) => parent.childNodes[i] === child);
  if (same) return;
  const focused = document.activeElement;
  parent.replaceChildren(...children);
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** A label for a state: a colour and, always, the word. */
export function badge(text, kind = "plain") {
  return h("span", { class: `badge ${kind}` }, text);
}

export function setBadge(element, text, kind) {
  setText(element, text);
  setClass(element, `badge ${kind}`);
}

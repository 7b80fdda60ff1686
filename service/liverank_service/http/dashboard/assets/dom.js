// Elements from code. Text becomes text nodes only: no key of a vertex is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

/** An element with attributes and children, which are nodes or text; null ones are left out. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Text for screen readers only. */
export const spoken = (text) => element("span", { class: "visually-hidden" }, text);

let chosen = null;

/** Gives an element the vertex that it looks up: see main.js. */
export function named(node, vertex) {
  node.dataset.vertex = vertex;
  mark(node);
  return node;
}

export const vertexButton = (vertex) =>
  named(element("button", { type: "button", class: "vertex", title: vertex }, vertex), vertex);

/** Marks a vertex wherever it is on the page; null: none. */
export function choose(vertex) {
  chosen = vertex;
  document.querySelectorAll("[data-vertex]").forEach(mark);
}

function mark(node) {
  if (node.dataset.vertex === chosen) node.setAttribute("aria-current", "true");
  else node.removeAttribute("aria-current");
}

export const small = (text) => element("span", { class: "muted small" }, text);

/** Gives a description list its rows: pairs of a term and its text or nodes. */
export function figures(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([term, ...texts]) => element("div", {}, element("dt", {}, term), element("dd", {}, ...texts))),
  );
  return list;
}

let spokenAt = 0;

/** Says a text politely to screen readers; unimportant ones at most every 10 seconds. */
export function announce(text, important = true) {
  const now = Date.now();
  if (!important && now - spokenAt < 10_000) return;
  spokenAt = now;
  find("announcer").textContent = text;
}

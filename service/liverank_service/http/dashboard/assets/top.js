// The places at the top: rows move when places change.

import { element, spoken, vertexButton } from "./dom.js";
import * as format from "./format.js";
import { sparkline } from "./sparkline.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class TopTable {
  #box;
  #ranks;
  #rows = new Map();
  #body = element("tbody");
  #atOpening = null;

  constructor(box, ranks) {
    this.#box = box;
    this.#ranks = ranks;
  }

  /** Forgets the places at opening: for another graph, or another number of places. */
  reset() {
    this.#rows.clear();
    this.#body.replaceChildren();
    this.#atOpening = null;
    this.#box.replaceChildren(element("p", { class: "skeleton tall" }));
  }

  /** places: [{vertex, rank}], best first; opened, now: Unix times */
  show(places, opened, now) {
    if (places.length === 0) {
      this.#box.replaceChildren(empty());
      this.#rows.clear();
      this.#body.replaceChildren();
      return;
    }
    this.#atOpening ??= new Map(places.map(({ vertex }, place) => [vertex, place]));
    if (!this.#body.isConnected) this.#box.replaceChildren(table(this.#body));
    const before = this.#positions();
    const shown = new Map();
    places.forEach(({ vertex, rank }, place) => {
      const row = this.#rows.get(vertex) ?? new Row(vertex);
      row.update(place, this.#atOpening.get(vertex), rank);
      row.spark(this.#ranks.of(vertex), opened, now);
      shown.set(vertex, row);
    });
    const order = [...shown.values()].map((row) => row.node);
    if (order.some((node, place) => this.#body.children[place] !== node) || order.length !== before.size) {
      reorder(this.#body, order);
    }
    this.#rows = shown;
    this.#animate(before);
  }

  /** The place of a vertex, from 1; null if it has none. */
  placeOf(vertex) {
    const row = this.#rows.get(vertex);
    return row ? row.place + 1 : null;
  }

  #positions() {
    return new Map([...this.#rows].map(([vertex, row]) => [vertex, row.node.offsetTop]));
  }

  #animate(before) {
    if (still.matches || before.size === 0) return;
    for (const [vertex, row] of this.#rows) {
      const top = before.get(vertex);
      if (top === undefined) {
        row.node.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 500 });
      } else if (top !== row.node.offsetTop) {
        const way = `translateY(${top - row.node.offsetTop}px)`;
        row.node.animate([{ transform: way }, { transform: "none" }], { duration: 350, easing: "ease-out" });
      }
    }
  }
}

/** Puts rows into order without moving the one that has the focus out of the document. */
function reorder(body, order) {
  const kept = new Set(order);
  for (const node of [...body.children]) if (!kept.has(node)) node.remove();
  const focused = order.findIndex((node) => node.contains(document.activeElement));
  if (focused < 0) {
    body.append(...order);
    return;
  }
  const anchor = order[focused];
  for (const node of order.slice(0, focused)) body.insertBefore(node, anchor);
  for (const node of order.slice(focused + 1)) body.append(node);
}

class Row {
  #cells;
  #line;

  constructor(vertex) {
    this.#cells = {
      place: element("td", { class: "number muted" }),
      movement: element("td", { class: "movement" }),
      rank: element("td", { class: "number" }),
      change: element("td", { class: "number change" }),
    };
    this.#line = sparkline();
    this.node = element(
      "tr",
      {},
      this.#cells.place,
      this.#cells.movement,
      element("th", { scope: "row" }, vertexButton(vertex)),
      element("td", { class: "spark-cell" }, this.#line.node),
      this.#cells.rank,
      this.#cells.change,
    );
  }

  update(place, atOpening, rank) {
    this.place = place;
    put(this.#cells.place, String(place + 1));
    put(this.#cells.rank, format.rank(rank));
    const moved = atOpening === undefined ? "new" : atOpening - place;
    if (moved === this.moved) return;
    this.moved = moved;
    this.#cells.movement.dataset.way = moved === "new" ? "new" : moved > 0 ? "up" : moved < 0 ? "down" : "none";
    this.#cells.movement.replaceChildren(...movement(moved));
  }

  spark(track, opened, now) {
    if (track === null) return;
    this.#line.draw(track, opened, now);
    const text = format.change(track.ranks[0], track.ranks.at(-1));
    put(this.#cells.change, text);
    this.#cells.change.dataset.way = text.startsWith("+") ? "up" : text.startsWith("−") ? "down" : "none";
  }
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function movement(moved) {
  if (moved === "new") return ["new", spoken(" since this page was opened")];
  if (moved === 0) return [element("span", { "aria-hidden": "true" }, "·"), spoken("unmoved")];
  const sign = element("span", { "aria-hidden": "true" }, moved > 0 ? "▲" : "▼");
  return [sign, spoken(moved > 0 ? "up " : "down "), ` ${Math.abs(moved)}`];
}

function table(body) {
  const heads = [
    ["number", "#", "Place"],
    ["movement", "Moved"],
    ["", "Vertex"],
    ["spark-cell", "Since opening"],
    ["number", "Rank"],
    ["number change", "Change"],
  ];
  const cells = heads.map(([name, text, full]) =>
    element("th", { scope: "col", class: name, ...(full ? { "aria-label": full } : {}) }, text),
  );
  return element("table", {}, element("thead", {}, element("tr", {}, ...cells)), body);
}

function empty() {
  const call = `curl ${location.origin}/graphs/default/batches -H 'Content-Type: application/json' \\\n     -d '{"insert": [["ada", "grace"], ["alan", "grace"], ["grace", "ada"]]}'`;
  return element(
    "div",
    { class: "empty" },
    element("p", {}, "This graph has no vertices yet. Send a batch, and its ranks appear here:"),
    element("pre", { tabindex: "0" }, element("code", {}, call)),
  );
}

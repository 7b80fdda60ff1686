// The places at the top. Rows keep their order while the pointer is on them.

import { element, find, spoken, vertexButton } from "./dom.js";
import * as format from "./format.js";
import { Ranks } from "./history.js";
import { sparkline } from "./sparkline.js";
import { colour } from "./theme.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

const AFTER_POINTER = 400; // ms: the click of a tap comes after its pointer has left

export class TopTable {
  #box;
  #ranks;
  #rows = new Map();
  #body = element("tbody");
  #atOpening = null;
  #courses = new Ranks(); // by vertex, its change over that of the mean rank of the places
  #before = new Map(); // the ranks shown last
  #held = null; // what is shown once the pointer has left
  #isHeld = false;
  #release = null;

  constructor(box, ranks) {
    this.#box = box;
    this.#ranks = ranks;
    this.#body.addEventListener("pointerenter", () => {
      clearTimeout(this.#release);
      this.#isHeld = true;
    });
    this.#body.addEventListener("pointerleave", () => {
      this.#release = setTimeout(() => this.#letGo(), AFTER_POINTER);
    });
  }

  #letGo() {
    const held = this.#held;
    this.#clear();
    if (held !== null) this.#show(...held);
  }

  #clear() {
    clearTimeout(this.#release);
    [this.#held, this.#isHeld] = [null, false];
    find("top-held").hidden = true;
  }

  /** Forgets the places at opening: for another graph, or another number of places. */
  reset() {
    this.#rows.clear();
    this.#body.replaceChildren();
    this.#atOpening = null;
    this.#courses.clear();
    this.#before.clear();
    this.#clear();
    this.#box.replaceChildren(element("p", { class: "skeleton tall" }));
  }

  /** Says why there are no places. */
  say(...content) {
    this.reset();
    this.#box.replaceChildren(element("div", { class: "empty" }, ...content));
  }

  /** places: [{vertex, rank}], best first; opened, now: Unix times */
  show(places, opened, now) {
    if (places.length === 0) {
      this.say(...empty());
      return;
    }
    this.#compare(places, now);
    if (this.#isHeld && this.#body.isConnected) this.#hold(places, opened, now);
    else this.#show(places, opened, now);
  }

  /** Continues the courses. All ranks move as the graph grows: what all share is left out. */
  #compare(places, now) {
    const before = ({ vertex }) => this.#before.get(vertex);
    const known = places.filter((place) => before(place) > 0);
    const total = (value) => known.reduce((sum, place) => sum + value(place), 0);
    const mean = known.length ? total(({ rank }) => rank) / total(before) : 1;
    for (const place of places) {
      const course = this.#courses.of(place.vertex)?.ranks.at(-1) ?? 1;
      const change = before(place) > 0 ? place.rank / before(place) / mean : 1;
      this.#courses.add(now, place.vertex, course * change);
    }
    this.#before = new Map(places.map(({ vertex, rank }) => [vertex, rank]));
  }

  /** Renews the rows that there are, where they are. */
  #hold(places, opened, now) {
    const found = new Map(places.map(({ vertex, rank }, place) => [vertex, { place, rank }]));
    for (const [vertex, row] of this.#rows) {
      const { place, rank } = found.get(vertex) ?? { place: null };
      this.#renew(row, vertex, place, rank, opened, now);
    }
    this.#held = [places, opened, now];
    const order = [...this.#rows.keys()];
    find("top-held").hidden = places.every(({ vertex }, place) => order[place] === vertex);
  }

  #renew(row, vertex, place, rank, opened, now) {
    row.update(place, this.#atOpening.get(vertex), rank);
    if (place !== null) row.draw(this.#ranks.of(vertex), this.#courses.of(vertex), opened, now);
  }

  #show(places, opened, now) {
    this.#atOpening ??= new Map(places.map(({ vertex }, place) => [vertex, place]));
    if (!this.#body.isConnected) this.#box.replaceChildren(table(this.#body));
    const before = [...this.#body.children];
    const shown = new Map();
    places.forEach(({ vertex, rank }, place) => {
      const row = this.#rows.get(vertex) ?? new Row(vertex);
      this.#renew(row, vertex, place, rank, opened, now);
      shown.set(vertex, row);
    });
    const order = [...shown.values()].map((row) => row.node);
    this.#rows = shown;
    if (order.length === before.length && order.every((node, place) => before[place] === node)) return;
    reorder(this.#body, order);
    if (before.length === 0) return;
    const stayed = before.filter((node) => node.isConnected);
    const moved = order.filter((node) => !stayed.includes(node));
    order.filter((node) => stayed.includes(node)).forEach((node, place) => node === stayed[place] || moved.push(node));
    moved.forEach(flash);
  }

  /** The place of a vertex, from 1; null if it has none. */
  placeOf(vertex) {
    const row = this.#rows.get(vertex);
    return row && row.place !== null ? row.place + 1 : null;
  }
}

/** Shows a row that came or overtook another, behind its text: rows that slide over each other cut theirs. */
function flash(node) {
  if (still.matches) return;
  node.animate([{ backgroundColor: colour("accent-faint") }, {}], { duration: 1200, easing: "ease-out" });
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

  /** place: null if it has left the list */
  update(place, atOpening, rank) {
    this.place = place;
    put(this.#cells.place, place === null ? "–" : String(place + 1));
    this.node.classList.toggle("gone", place === null);
    if (place === null) return;
    put(this.#cells.rank, format.rank(rank));
    const moved = atOpening === undefined ? "new" : atOpening - place;
    if (moved === this.moved) return;
    this.moved = moved;
    this.#cells.movement.dataset.way = moved === "new" ? "new" : moved > 0 ? "up" : moved < 0 ? "down" : "none";
    this.#cells.movement.replaceChildren(...movement(moved));
  }

  draw(ranks, course, opened, now) {
    this.#line.draw(course, opened, now);
    if (ranks === null) return;
    const text = format.change(ranks.ranks[0], ranks.ranks.at(-1));
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
    ["spark-cell", "Against mean", "Change against the mean rank of these places, since this page was opened"],
    ["number", "Rank"],
    ["number change", "Change", "Change since this page was opened"],
  ];
  const cells = heads.map(([name, text, full]) =>
    element("th", { scope: "col", class: name, ...(full ? { "aria-label": full, title: full } : {}) }, text),
  );
  return element("table", {}, element("thead", {}, element("tr", {}, ...cells)), body);
}

function empty() {
  const call = `curl ${location.origin}/graphs/default/batches -H 'Content-Type: application/json' \\\n     -d '{"insert": [["ada", "grace"], ["alan", "grace"], ["grace", "ada"]]}'`;
  return [
    element("p", {}, "This graph has no vertices yet. Send a batch, and its ranks appear here:"),
    element("pre", { tabindex: "0" }, element("code", {}, call)),
  ];
}

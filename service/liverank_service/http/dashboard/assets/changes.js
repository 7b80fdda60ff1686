// The newest changes, as the feed tells of them: those of some seconds together.

import { announce, element, find, spoken, vertexButton } from "./dom.js";
import * as format from "./format.js";
import { keyOf } from "./json.js";
import { THRESHOLD } from "./feed.js";

const SECONDS = 5; // between two groups of lines
const SHOWN = 60;
const NAMED = 3; // vertices in a line

export class ChangeList {
  #waiting = [];
  #since = null;
  #closed = 0; // when the last group ended
  #isPaused = false;
  #isEmpty = true;

  constructor(ranks) {
    this.ranks = ranks;
    this.list = find("feed");
    const button = find("feed-pause");
    button.addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      button.setAttribute("aria-pressed", String(this.#isPaused));
      button.textContent = this.#isPaused ? "Resume" : "Pause";
    });
  }

  reset() {
    this.#waiting = [];
    this.#since = null;
    this.#closed = 0;
    this.#isEmpty = true;
    const text = "Nothing has changed since this page was opened.";
    this.list.replaceChildren(element("li", { class: "empty" }, text));
  }

  /** An event of the feed. */
  add(change, places) {
    const told = [...change.entered, ...change.left, ...change.moved];
    const time = Date.now() / 1000; // of this machine, as in all tracks: that of the server may differ
    for (const { vertex, rank } of told) this.ranks.add(time, keyOf(vertex), rank);
    if (told.length === 0) return;
    this.#since ??= new Changes(change, places);
    this.#since.add(change);
    if (change.entered.length) {
      const names = change.entered.slice(0, NAMED).map(({ vertex }) => keyOf(vertex));
      announce(`entered the top ${places}: ${names.join(", ")}`, false);
    }
  }

  /** A text about the feed itself. */
  note(time, text) {
    this.#close();
    this.#waiting.push(line(time, "note", "·", "", text));
  }

  /** Shows what has been added; lines stay where they are while the pointer is on them. */
  draw(now) {
    if (this.#since !== null && now - this.#closed >= SECONDS) {
      this.#closed = now;
      this.#close();
    }
    if (this.#waiting.length === 0 || this.#isPaused || this.list.matches(":hover")) {
      this.#waiting.splice(0, this.#waiting.length - SHOWN);
      return;
    }
    if (this.#isEmpty) this.list.replaceChildren();
    this.#isEmpty = false;
    this.list.prepend(...this.#waiting.splice(0).reverse());
    while (this.list.children.length > SHOWN) this.list.lastChild.remove();
  }

  #close() {
    if (this.#since !== null) this.#waiting.push(...this.#since.lines());
    this.#since = null;
  }
}

/** Those of one or more events. */
class Changes {
  #entered = new Map();
  #left = new Map();
  #moved = new Map();
  #lacks = false;

  constructor({ version }, places) {
    this.first = version;
    this.places = places;
  }

  add({ time, version, entered, left, moved, truncated }) {
    [this.time, this.last] = [time, version];
    this.#lacks ||= truncated;
    this.#cross(entered, this.#entered, this.#left);
    this.#cross(left, this.#left, this.#entered);
    for (const { vertex } of [...entered, ...left]) this.#moved.delete(keyOf(vertex));
    for (const { vertex, rank } of moved) {
      const key = keyOf(vertex); // which one line names
      const crossed = [this.#entered, this.#left].find((told) => told.has(key));
      (crossed ?? this.#moved).set(key, rank);
    }
  }

  /** Who came back has crossed nothing. */
  #cross(told, here, there) {
    for (const { vertex, rank } of told) {
      const key = keyOf(vertex);
      if (!there.delete(key)) here.set(key, rank);
    }
  }

  lines() {
    const [first, last] = [this.first, this.last].map(format.count);
    const versions = first === last ? `v${last}` : `v${first}–${last}`;
    const of = (kind, sign, ...content) => line(this.time, kind, sign, versions, ...content);
    const lines = [];
    if (this.#moved.size) {
      const many = `${this.#lacks ? "at least " : ""}${format.plural(this.#moved.size, "vertex", "vertices")}`;
      lines.push(of("moved", "↕", `${many} moved by more than ${THRESHOLD * 100} %: `, ...list(this.#moved)));
    }
    if (this.#left.size) lines.push(of("left", "↓", `left the top ${this.places}: `, ...list(this.#left)));
    if (this.#entered.size) lines.push(of("entered", "↑", `entered the top ${this.places}: `, ...list(this.#entered)));
    return lines;
  }
}

/** Vertices with their ranks, the first of them by name. */
function list(ranks) {
  const parts = [...ranks].slice(0, NAMED).map(([vertex, rank]) => {
    const value = rank === null ? "removed" : format.rank(rank);
    return [vertexButton(vertex), " ", element("span", { class: "value" }, value)];
  });
  if (ranks.size > NAMED) parts.push([format.plural(ranks.size - NAMED, "other")]);
  const between = (place) => (place === 0 ? "" : place === parts.length - 1 ? " and " : ", ");
  return parts.flatMap((part, place) => [between(place), ...part]);
}

function line(time, kind, sign, versions, ...content) {
  return element(
    "li",
    { class: `feed-${kind}` },
    element("span", { class: "when" }, format.time(time)),
    element("span", { class: "sign", "aria-hidden": "true" }, sign),
    element("span", { class: "what" }, ...content),
    versions === "" ? "" : element("span", { class: "when" }, spoken("version "), versions),
  );
}

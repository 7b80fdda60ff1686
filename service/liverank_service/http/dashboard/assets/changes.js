// The newest changes, as the feed tells of them.

import { announce, element, find, spoken, vertexButton } from "./dom.js";
import * as format from "./format.js";
import { keyOf } from "./json.js";
import { THRESHOLD } from "./feed.js";

const SHOWN = 60;
const SHOWN_OF_EVENT = 3;

export class ChangeList {
  #waiting = [];
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
    this.#isEmpty = true;
    const text = "Nothing has changed since this page was opened.";
    this.list.replaceChildren(element("li", { class: "empty" }, text));
  }

  /** An event of the feed. */
  add(change, places) {
    for (const { vertex, rank } of change.entered) this.#put(change, "entered", vertex, rank, places);
    for (const { vertex, rank } of change.left) this.#put(change, "left", vertex, rank, places);
    if (change.moved.length) this.#putMoved(change);
    if (change.entered.length) {
      const names = change.entered.slice(0, 3).map(({ vertex }) => keyOf(vertex));
      announce(`entered the top ${places}: ${names.join(", ")}`, false);
    }
    const time = Date.now() / 1000; // of this machine, as in all tracks: that of the server may differ
    for (const { vertex, rank } of [...change.entered, ...change.left, ...change.moved]) {
      this.ranks.add(time, keyOf(vertex), rank);
    }
  }

  /** A text about the feed itself. */
  note(time, text) {
    this.#waiting.push(line(time, "note", "·", "", text));
  }

  /** Shows what has been added. */
  draw() {
    if (this.#waiting.length === 0 || this.#isPaused) {
      this.#waiting.splice(0, this.#waiting.length - SHOWN);
      return;
    }
    if (this.#isEmpty) this.list.replaceChildren();
    this.#isEmpty = false;
    this.list.prepend(...this.#waiting.splice(0).slice(-SHOWN).reverse());
    while (this.list.children.length > SHOWN) this.list.lastChild.remove();
  }

  #put({ time, version }, kind, vertex, rank, places) {
    const text = kind === "entered" ? `entered the top ${places}` : `left the top ${places}`;
    const detail = rank === null ? "removed" : format.rank(rank);
    const sign = kind === "entered" ? "↑" : "↓";
    this.#waiting.push(line(time, kind, sign, version, vertexButton(keyOf(vertex)), ` ${text} `, value(detail)));
  }

  #putMoved({ time, version, moved, truncated }) {
    const rows = moved.slice(0, SHOWN_OF_EVENT).flatMap(({ vertex, rank }) => {
      const detail = rank === null ? "removed" : `to ${format.rank(rank)}`;
      return [vertexButton(keyOf(vertex)), " ", value(detail), ", "];
    });
    const many = `${truncated ? "at least " : ""}${format.plural(moved.length, "vertex", "vertices")}`;
    const rest = moved.length > SHOWN_OF_EVENT ? ", …" : "";
    const text = ` moved by more than ${THRESHOLD * 100} %: `;
    this.#waiting.push(line(time, "moved", "↕", version, many, text, ...rows.slice(0, -1), rest));
  }
}

const value = (text) => element("span", { class: "value" }, text);

function line(time, kind, sign, version, ...content) {
  return element(
    "li",
    { class: `feed-${kind}` },
    element("span", { class: "when" }, format.time(time)),
    element("span", { class: "sign", "aria-hidden": "true" }, sign),
    element("span", { class: "what" }, ...content),
    version === "" ? "" : element("span", { class: "when" }, spoken("version "), `v${format.count(version)}`),
  );
}

// One vertex: its rank since this page was opened, who gives it, and the vertices that matter most to it.

import { getJson, graphPath, postJson } from "./api.js";
import { announce, choose, element, figures, find, vertexButton } from "./dom.js";
import * as format from "./format.js";
import { encodedKeys, keyOf } from "./json.js";
import { drawing } from "./neighbourhood.js";
import { Plot } from "./plots.js";

const NEIGHBOURS = 13; // the vertex itself is one of them
const LISTED = 8;
const GIVERS = 6;

export class VertexView {
  #page;
  #stop = null;
  #vertex = null;
  #plot = null;

  /** page: graph, view, path, keys (the kind of its keys), ranks, placeOf */
  constructor(page) {
    this.#page = page;
    this.box = find("vertex");
  }

  reset() {
    this.#stop?.abort();
    this.#vertex = null;
    choose(null);
    this.#plot?.destroy();
    this.box.replaceChildren(element("p", { class: "empty" }, "Enter a key, or choose a vertex of the list."));
  }

  /** vertex: its key, as keyOf has it */
  async lookUp(vertex) {
    choose(vertex);
    this.#stop?.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.#vertex = null;
    this.box.replaceChildren(element("p", { class: "skeleton tall" }));
    try {
      const rank = await this.#rankOf(vertex, signal);
      if (rank === null) {
        this.#say("empty", "No vertex of this graph has the key ", element("code", {}, vertex), ".");
        announce("no such vertex");
        return;
      }
      this.#vertex = vertex;
      this.#build(vertex);
      this.#show(rank);
      announce(`${vertex}: rank ${format.rank(rank)}`);
      await this.#draw(vertex, signal);
    } catch (error) {
      if (!signal.aborted) this.#say("error", `The vertex could not be read: ${error.message}`);
    }
  }

  /** Reads the rank again, after a new revision. */
  async refresh() {
    const vertex = this.#vertex;
    if (vertex === null) return;
    const rank = await this.#rankOf(vertex, this.#stop.signal);
    if (vertex !== this.#vertex) return;
    if (rank === null) this.#say("empty", element("code", {}, vertex), " has left the graph.");
    else this.#show(rank);
  }

  async #rankOf(vertex, signal) {
    const { keys, path, ranks } = this.#page;
    const encoded = encodedKeys([vertex], keys);
    if (encoded === null) return null;
    const answer = await postJson(path("/ranks"), `{"vertices":${encoded}}`, signal);
    ranks.add(Date.now() / 1000, vertex, answer.ranks[0]);
    return answer.ranks[0];
  }

  #say(name, ...content) {
    this.#vertex = null;
    this.box.replaceChildren(element("p", { class: name }, ...content));
  }

  #build(vertex) {
    this.figures = element("dl", { class: "summary small-summary" });
    this.givers = element("div", { class: "givers" }, element("p", { class: "skeleton" }));
    this.neighbours = element("div", { class: "neighbours" }, element("p", { class: "skeleton tall" }));
    const plot = element("div", { class: "plot low" });
    const legend = element("ul", { class: "legend" });
    const again = element("button", { type: "button", class: "quiet" }, "Update");
    again.addEventListener("click", () => this.#draw(vertex, this.#stop.signal));
    this.asOf = element("span", { class: "aside" });
    this.box.replaceChildren(
      element("h3", { class: "vertex-name", title: vertex }, vertex),
      this.figures,
      plot,
      legend,
      element("h3", {}, "Who gives this its rank"),
      this.givers,
      element("div", { class: "card-head" }, element("h3", {}, "Nearest by personalized rank ", this.asOf), again),
      this.neighbours,
    );
    this.#plot?.destroy();
    this.#plot = new Plot(plot, legend, {
      name: `Rank of ${vertex} since this page was opened`,
      axes: { y: ["rank", (tick) => (tick >= 1e-3 || tick === 0 ? String(+tick.toPrecision(4)) : tick.toExponential(1))] },
      series: [{ label: "rank since this page was opened", colour: "accent", format: format.rank }],
      height: 130,
      fitted: true,
    });
  }

  #show(rank) {
    const track = this.#page.ranks.of(this.#vertex);
    const place = this.#page.placeOf(this.#vertex);
    figures(this.figures, [
      ["Rank", format.rank(rank)],
      ["Since opening", format.change(track.ranks[0], rank) || "–"],
      ["Place", place === null ? "below the list" : String(place)],
    ]);
    this.#plot.set([[...track.times], [...track.ranks]]);
  }

  async #draw(vertex, signal) {
    const told = (box, failure) => (error) => {
      if (!signal.aborted) box.replaceChildren(element("p", { class: "error" }, `${failure}: ${error.message}`));
    };
    await Promise.all([
      this.#showGivers(vertex, signal).catch(told(this.givers, "What gives the rank could not be read")),
      this.#drawNeighbours(vertex, signal).catch(told(this.neighbours, "The neighbours could not be read")),
    ]);
  }

  async #showGivers(vertex, signal) {
    const path = this.#page.path(`/explain/${encodeURIComponent(vertex)}?k=${GIVERS}`);
    const { degree, contributions, rest, teleport } = await getJson(path, signal);
    if (vertex !== this.#vertex) return;
    const others = degree - contributions.length;
    const rows = contributions.map((each) => [vertexButton(keyOf(each.vertex)), each.contribution]);
    if (others > 0) rows.push([format.plural(others, "other"), rest]);
    rows.push([this.#page.view === null ? "every vertex has" : "walks that restart here", teleport]);
    this.givers.replaceChildren(list(rows.map(([name, part]) => [element("span", {}, name), part])));
  }

  async #drawNeighbours(vertex, signal) {
    const { graph, keys } = this.#page;
    const seeds = JSON.stringify({ [vertex]: 1 });
    const query = `{"queries":[{"seeds":${seeds},"k":${NEIGHBOURS},"unknown":"ignore"}]}`;
    const { version, answers } = await postJson(graphPath(graph, "/personalized"), query, signal);
    const ranks = answers[0].ranks
      .map((place) => ({ vertex: keyOf(place.vertex), rank: place.rank }))
      .filter((place) => place.rank > 0);
    if (!ranks.some((place) => place.vertex === vertex)) ranks.push({ vertex, rank: 0 });
    const edges = await this.#edgesAmong(ranks.map((place) => place.vertex), keys, graph, signal);
    if (vertex !== this.#vertex) return;
    this.asOf.textContent = `version ${format.count(version)}`;
    this.#showNeighbours(vertex, ranks, edges);
  }

  async #edgesAmong(vertices, keys, graph, signal) {
    const body = `{"vertices":${encodedKeys(vertices, keys)}}`;
    const { edges } = await postJson(graphPath(graph, "/subgraph"), body, signal);
    return edges.map(([source, target]) => [keyOf(source), keyOf(target)]);
  }

  #showNeighbours(vertex, ranks, edges) {
    const others = ranks.filter((place) => place.vertex !== vertex);
    if (others.length === 0) {
      const text = "Walks from this vertex reach no other one.";
      this.neighbours.replaceChildren(element("p", { class: "empty" }, text));
      return;
    }
    const nearest = others.slice(0, LISTED).map((place) => [vertexButton(place.vertex), place.rank]);
    this.neighbours.replaceChildren(drawing(vertex, ranks, edges), list(nearest));
  }
}

/** rows: pairs of a node and its rank */
function list(rows) {
  const items = rows.map(([node, rank]) =>
    element("li", {}, node, element("span", { class: "value" }, format.rank(rank))),
  );
  return element("ol", { class: "neighbour-list" }, ...items);
}

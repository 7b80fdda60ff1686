// What the server says of itself: health, subscribers, memory and sources.

import { getJson, getText, graphPath, Problem } from "./api.js";
import { element, figures, find, small } from "./dom.js";
import * as format from "./format.js";

const COUNTED = ["inserted", "deleted", "reweighted", "expired"];

const SHOWN_SOURCES = 20;
const STATES = { consuming: "good", retrying: "waiting", stopped: "bad" };

export class ServerView {
  #mayReadMetrics = true;
  #hasSources = false;
  #release = null;

  /** Forgets what another key may read. */
  reset() {
    this.#mayReadMetrics = true;
  }

  /** Reads the release and the calls of this server, once. */
  async start() {
    if (this.#release !== null) return;
    const { info, paths } = await getJson("openapi.json");
    this.#release = info.version;
    this.#hasSources = "/graphs/{graph}/sources" in paths;
    find("release").textContent = `liverank ${info.version}`;
  }

  /**
   * Reads everything again. Returns the time, and how many edges of the graph have
   * changed since the server started: null if the key may not read that.
   */
  async refresh(graph) {
    const [health, metrics] = await Promise.all([healthOf(), this.#readMetrics()]);
    const value = (name) => metrics?.get(`${name}{graph="${graph.graph}"}`);
    const subscribers = value("liverank_subscribers");
    figures(find("server"), [
      ["Health", healthText(health)],
      ["Backend", graph.backend],
      ["Subscribers", subscribers === undefined ? small("needs a key for all graphs") : format.count(subscribers)],
      ...(metrics
        ? [
            ["Waiting batches", format.count(value("liverank_queue_batches") ?? 0)],
            ["Process memory", format.bytes(metrics.get("process_resident_memory_bytes") ?? 0)],
          ]
        : []),
    ]);
    showMemory(graph.memory);
    if (this.#hasSources) await showSources(graph.graph);
    if (!metrics) return null;
    const edges = COUNTED.map((change) => metrics.get(`liverank_edges_total{change="${change}",graph="${graph.graph}"}`));
    return { time: Date.now() / 1000, total: edges.reduce((sum, number) => sum + (number ?? 0), 0) };
  }

  showAway(reason) {
    figures(find("server"), [["Health", healthText({ state: "bad", text: reason })]]);
  }

  async #readMetrics() {
    if (!this.#mayReadMetrics) return null;
    try {
      return parsed(await getText("metrics"));
    } catch (error) {
      if (error instanceof Problem && error.isAboutKey) this.#mayReadMetrics = false;
      return null;
    }
  }
}

/** Prometheus' text format: the value by name and labels, which come in alphabetical order. */
function parsed(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    values.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return values;
}

const healthText = ({ state, text }) => element("span", { class: "health", "data-state": state }, text);

async function healthOf() {
  try {
    await getJson("readyz");
    return { state: "good", text: "ready" };
  } catch (error) {
    return { state: "bad", text: error.message };
  }
}

function showMemory(memory) {
  const rows = Object.entries(memory).filter(([, size]) => size > 0).sort((one, other) => other[1] - one[1]);
  const total = rows.reduce((sum, [, size]) => sum + size, 0);
  find("memory-total").textContent = format.bytes(total);
  find("memory").replaceChildren(
    ...rows.map(([purpose, size]) => {
      const bar = element("span", { class: "memory-bar", "aria-hidden": "true" });
      bar.style.transform = `scaleX(${(size / rows[0][1]).toFixed(3)})`;
      return element("li", {}, element("span", {}, purpose), element("span", { class: "value" }, format.bytes(size)), bar);
    }),
  );
}

async function showSources(graph) {
  const { sources, consumers } = await getJson(graphPath(graph, "/sources"));
  find("sources-card").hidden = sources.length + consumers.length === 0;
  const positions = sources.slice(0, SHOWN_SOURCES).map(({ source, partition, position, time }) => [
    partition ? `${source} / ${partition}` : source,
    String(position),
    time ? small(` ${format.time(time)}`) : null,
  ]);
  const states = consumers.slice(0, SHOWN_SOURCES).map(({ source, state, reason }) => [
    source,
    healthText({ state: STATES[state], text: state }),
    reason === null ? null : ` ${reason}`,
  ]);
  const list = (id, pairs) => (pairs.length > 0 ? figures(element("dl", { class: "figures", id }), pairs) : "");
  const rest = sources.length - positions.length;
  find("sources").replaceChildren(
    list("consumers", states),
    list("positions", positions),
    rest > 0 ? element("p", { class: "muted small" }, `and ${format.count(rest)} more`) : "",
  );
}

// The graphs of the server, and the figures of the one that is shown.

import { element, figures, find } from "./dom.js";
import * as format from "./format.js";

/** graphs: as GET /graphs lists them; choose: called with a name */
export function showGraphs(graphs, current, choose) {
  const list = find("graphs");
  const names = graphs.map(({ graph }) => graph).join("\n");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...graphs.map(({ graph }) => entry(graph, choose)));
  }
  graphs.forEach((graph, place) => {
    const button = list.children[place].firstChild;
    button.setAttribute("aria-current", String(graph.graph === current));
    const lines = [
      `${format.plural(graph.vertices, "vertex", "vertices")} · ${format.plural(graph.edges, "edge")}`,
      `version ${format.count(graph.version)} · ${graph.options.strategy} · error ≤ ${format.bound(graph.error_bound)}`,
    ];
    [...button.children].slice(1).forEach((line, number) => {
      if (line.textContent !== lines[number]) line.textContent = lines[number];
    });
  });
}

function entry(graph, choose) {
  const lines = [element("span", { class: "muted small" }), element("span", { class: "muted small" })];
  const button = element("button", { type: "button", class: "graph-entry" }, element("strong", {}, graph), ...lines);
  button.addEventListener("click", () => choose(graph));
  return element("li", {}, button);
}

export function showSummary(graph) {
  const { options } = graph;
  const kind = [
    options.directed ? "directed" : "undirected",
    options.weighted ? "weighted" : null,
    options.window ? `window ${options.window} s` : null,
  ];
  figures(find("summary"), [
    ["Graph", element("strong", {}, graph.graph), element("span", { class: "muted small" }, kind.filter(Boolean).join(", "))],
    ["Vertices", format.count(graph.vertices)],
    ["Edges", format.count(graph.edges)],
    ["Version", format.count(graph.version)],
    ["Error bound", format.bound(graph.error_bound)],
    ["Strategy", options.strategy, element("span", { class: "muted small" }, `damping ${options.damping}`)],
  ]);
}

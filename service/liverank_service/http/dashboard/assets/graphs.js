// The graphs of the server, the views of the one that is shown, and its figures.

import { element, figures, find, small } from "./dom.js";
import * as format from "./format.js";

/** graphs: as GET /graphs lists them; choose: called with a name */
export function showGraphs(graphs, current, choose) {
  const entries = graphs.map((graph) => ({
    name: graph.graph,
    title: graph.graph,
    lines: [
      `${format.plural(graph.vertices, "vertex", "vertices")} · ${format.plural(graph.edges, "edge")}`,
      `version ${format.count(graph.version)} · ${graph.options.strategy} · error ≤ ${format.bound(graph.error_bound)}`,
    ],
  }));
  show(find("graphs"), entries, current, choose);
}

/** views: as GET /graphs/{graph}/views lists them; current: a name, or null for the ranks of the graph */
export function showViews(graph, views, current, choose) {
  find("views-card").hidden = views.length === 0 && current === null;
  const { target_error: target } = graph.options;
  const own = {
    name: null,
    title: "Ranks of the graph",
    lines: ["restart at all vertices alike · forward", `error ≤ ${format.bound(graph.error_bound)} · target ${format.bound(target)}`],
  };
  const entries = views.map((view) => ({ name: view.name, title: view.name, lines: lines(view) }));
  show(find("views"), [own, ...entries], current, choose);
}

/** Where the walks of a view restart and which way they go, how near its ranks are, and when it is solved. */
function lines({ teleport, set, weights, direction, within, error_bound: bound, target_error: target, refresh, problem }) {
  const places = { uniform: "all vertices alike", set: `set ${set}`, weights: format.plural(weights, "weight") };
  const part = typeof within === "number" ? format.plural(within, "vertex", "vertices") : `set ${within}`;
  const inside = within === null ? "" : ` · within ${part}`;
  const error = bound === null ? (problem ?? NO_WEIGHT) : `error ≤ ${format.bound(bound)}`;
  const solved = { batch: "by batches", read: "by reads" }[refresh] ?? `every ${refresh} s at most`;
  return [
    `restart at ${places[teleport]} · ${direction}${inside}`,
    `${error} · target ${format.bound(target)}`,
    `solved ${solved}`,
  ];
}

export const NO_WEIGHT = "no vertex of the graph has a weight in the view";

/** entries: [{name, title, lines}]; the text of those that stay is renewed in place */
function show(list, entries, current, choose) {
  const names = JSON.stringify(entries.map(({ name }) => name));
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...entries.map((one) => entry(one, choose)));
  }
  entries.forEach(({ name, lines }, place) => {
    const item = list.children[place];
    const button = item.firstChild;
    const isCurrent = name === current;
    if (isCurrent && button.getAttribute("aria-current") !== "true") list.scrollTop = item.offsetTop - list.offsetTop;
    button.setAttribute("aria-current", String(isCurrent));
    [...button.children].slice(1).forEach((line, number) => {
      if (line.textContent !== lines[number]) line.textContent = lines[number];
    });
  });
}

function entry({ name, title, lines }, choose) {
  const button = element("button", { type: "button", class: "entry" }, element("strong", {}, title), ...lines.map(small));
  button.addEventListener("click", () => choose(name));
  return element("li", {}, button);
}

/** seen: the view whose ranks are shown; null: those of the graph */
export function showSummary(graph, seen) {
  const { options } = graph;
  const kind = [
    options.directed ? "directed" : "undirected",
    options.weighted ? "weighted" : null,
    options.window ? `window ${options.window} s` : null,
  ];
  figures(find("summary"), [
    ["Graph", element("strong", {}, graph.graph), small(kind.filter(Boolean).join(", "))],
    ["Vertices", format.count(graph.vertices)],
    ["Edges", format.count(graph.edges)],
    ["Version", format.count(graph.version)],
    seen === null
      ? ["Error bound", format.bound(graph.error_bound)]
      : ["Error bound", seen.error_bound === null ? "–" : format.bound(seen.error_bound), small(`of the view ${seen.name}`)],
    ["Strategy", options.strategy, small(`damping ${(seen ?? options).damping}`)],
  ]);
}

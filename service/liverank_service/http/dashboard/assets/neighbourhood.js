// A vertex and those of highest personalized rank, as a small graph: d3-force lays it out.

import { named, svg } from "./dom.js";
import * as format from "./format.js";

const WIDTH = 560;
const HEIGHT = 380;
const MARGIN = 34;
const TICKS = 260;
const LARGEST_SCALE = 1.6;
const LONGEST_LABEL = 16;

/** ranks: [{vertex, rank}], which include the seed; edges: [[source, target]] among them */
export function drawing(seed, ranks, edges) {
  const nodes = placed(ranks, edges);
  const largest = Math.max(...ranks.filter(({ vertex }) => vertex !== seed).map(({ rank }) => rank), 1e-300);
  const label = `${seed} and the ${format.plural(nodes.length - 1, "vertex", "vertices")} nearest to it`;
  const picture = svg("svg", { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label });
  picture.append(arrowhead());
  const byVertex = new Map(nodes.map((node) => [node.vertex, node]));
  const pairs = new Set(edges.map(([source, target]) => JSON.stringify([source, target])));
  for (const [source, target] of edges) {
    if (source === target) continue;
    const isMutual = pairs.has(JSON.stringify([target, source]));
    if (isMutual && source > target) continue;
    picture.append(line(byVertex.get(source), byVertex.get(target), isMutual, { seed, largest }));
  }
  for (const node of nodes) picture.append(dot(node, { seed, largest }));
  return picture;
}

function placed(ranks, edges) {
  const nodes = ranks.map(({ vertex, rank }) => ({ vertex, rank }));
  const links = edges.filter(([source, target]) => source !== target).map(([source, target]) => ({ source, target }));
  const simulation = d3
    .forceSimulation(nodes)
    .force("edges", d3.forceLink(links).id((node) => node.vertex).distance(80).strength(0.15))
    .force("charge", d3.forceManyBody().strength(-420))
    .force("collision", d3.forceCollide(36))
    .force("x", d3.forceX().strength(0.06))
    .force("y", d3.forceY().strength(0.11))
    .stop();
  simulation.tick(TICKS);
  fit(nodes, "x", MARGIN + 22, WIDTH - MARGIN - 22);
  fit(nodes, "y", MARGIN - 8, HEIGHT - MARGIN);
  return nodes;
}

/** Moves and scales a coordinate of all nodes into a range. */
function fit(nodes, name, start, end) {
  const values = nodes.map((node) => node[name]);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const scale = Math.min((end - start) / (high - low || 1), LARGEST_SCALE);
  for (const node of nodes) node[name] = (start + end) / 2 + (node[name] - (low + high) / 2) * scale;
}

const radius = (node, { seed, largest }) =>
  node.vertex === seed ? 13 : 4 + 8 * Math.sqrt(Math.min(1, node.rank / largest));

function line(from, to, isMutual, scale) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const gap = (node) => (radius(node, scale) + 4) / length;
  const [start, end] = [gap(from), 1 - gap(to)];
  const at = (part) => [from.x + (to.x - from.x) * part, from.y + (to.y - from.y) * part];
  const [[x1, y1], [x2, y2]] = [at(start), at(end)];
  const ends = { "marker-end": "url(#arrowhead)", ...(isMutual ? { "marker-start": "url(#arrowhead)" } : {}) };
  const isOwn = from.vertex === scale.seed || to.vertex === scale.seed;
  return svg("line", { class: "graph-edge", "data-own": isOwn, x1, y1, x2, y2, ...ends });
}

function dot(node, scale) {
  const size = radius(node, scale);
  const name = `${node.vertex}, personalized rank ${format.rank(node.rank)}`;
  const group = svg(
    "g",
    { class: "graph-node", "data-seed": node.vertex === scale.seed, transform: `translate(${node.x} ${node.y})`, role: "button" },
    svg("title", {}, name),
    svg("circle", { r: size }),
    svg("text", { y: size + 13, "text-anchor": "middle" }, shortened(node.vertex)),
  );
  group.setAttribute("tabindex", "0");
  group.setAttribute("aria-label", name);
  return named(group, node.vertex);
}

function shortened(text) {
  const letters = [...text];
  return letters.length <= LONGEST_LABEL ? text : `${letters.slice(0, LONGEST_LABEL - 1).join("")}…`;
}

function arrowhead() {
  const box = { id: "arrowhead", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6 };
  return svg(
    "defs",
    {},
    svg("marker", { ...box, orient: "auto-start-reverse" }, svg("path", { class: "graph-arrow", d: "M0 0 8 4 0 8z" })),
  );
}

// The page: connects, follows one graph, and gives what arrives to its parts.

import { getJson, graphPath, Problem, Unreachable } from "./api.js";
import { ChangeList } from "./changes.js";
import { Charts } from "./charts.js";
import { connection } from "./connection.js";
import { find } from "./dom.js";
import { follow } from "./feed.js";
import { showGraphs, showSummary } from "./graphs.js";
import { Ranks } from "./history.js";
import { keyOf } from "./json.js";
import { KeyPanel } from "./key.js";
import { ServerView } from "./server.js";
import { startTheme } from "./theme.js";
import { TopTable } from "./top.js";
import { VertexView } from "./vertex.js";

const TOP_PAUSE = 1000; // ms between two requests for the places
const SERVER_PAUSE = 2000;
const TICK = 1000;

const now = () => Date.now() / 1000;
const waited = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

startTheme();

const ranks = new Ranks();
const top = new TopTable(find("top"), ranks);
const charts = new Charts();
const changes = new ChangeList(ranks);
const server = new ServerView();
const keyPanel = new KeyPanel(connect);

/**
 * What is shown.
 *
 * graph        its name
 * information  as GET /graphs/{graph} has it
 * keys         what the keys of its vertices are: "string" or "integer"
 * isListed     whether the key may list graphs
 * stop         ends everything that belongs to the graph
 */
const page = {
  graph: null,
  information: null,
  keys: "string",
  isListed: true,
  opened: now(),
  edges: null,
  stop: new AbortController(),
  ranks,
  placeOf: (vertex) => top.placeOf(vertex),
};
const vertexView = new VertexView(page);

// Connecting

/** The graph that the address names after #. */
function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

let attempts = 0;

/** Finds the graphs that can be read, and opens one. wanted: a name, if the user gave one */
async function connect(wanted = "") {
  page.stop.abort();
  page.isListed = true;
  attempts += 1;
  const attempt = attempts;
  connection({ state: "connecting" });
  try {
    const graphs = await readGraphs(wanted || named() || "default");
    await server.start();
    if (attempt !== attempts) return; // the user has chosen another graph meanwhile
    const names = graphs.map(({ graph }) => graph);
    const asked = wanted || named();
    const name = [asked, named(), "default", names[0]].find((one) => names.includes(one));
    keyPanel.close();
    if (name === undefined) await retryLater("There is no graph that can be read here yet.", wanted);
    else {
      open(name, graphs);
      showMissing(asked, name);
    }
  } catch (error) {
    if (attempt !== attempts) return;
    if (error instanceof Problem && error.isAboutKey) askForKey(error);
    else if (isPassing(error)) await retryLater(error.message, wanted);
    else throw error;
  }
}

/** All graphs, or the named one if the key may not list them. */
async function readGraphs(name) {
  if (page.isListed) {
    try {
      return (await getJson("graphs")).graphs;
    } catch (error) {
      if (!(error instanceof Problem && error.status === 403)) throw error;
      page.isListed = false;
    }
  }
  return [await getJson(graphPath(name))];
}

async function retryLater(reason, wanted) {
  find("content").hidden = page.graph === null;
  const seconds = 2;
  const attempt = attempts;
  await new Promise((retry) => {
    connection({ state: "waiting", seconds, reason, retry });
    setTimeout(retry, seconds * 1000);
  });
  if (attempt === attempts) connect(wanted);
}

function askForKey(error) {
  page.stop.abort();
  find("content").hidden = true;
  connection({ state: "locked" });
  keyPanel.open(error, false);
}

// One graph

let feed = new AbortController();
let refreshSoon = () => {};

function open(name, graphs) {
  page.stop.abort();
  page.stop = new AbortController();
  page.graph = name;
  page.edges = null;
  page.opened = now();
  server.reset();
  ranks.clear();
  for (const part of [top, charts, changes, vertexView]) part.reset();
  find("content").hidden = false;
  if (named() !== name) history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  document.title = `${name} · liverank`;
  showInformation(graphs);
  const { signal } = page.stop;
  for (const task of [watchChanges, watchServer, tick]) {
    task(name, signal).catch((error) => signal.aborted || failed(error));
  }
}

/** Says that another graph is shown than the one asked for, if it is. */
function showMissing(asked, name) {
  const notice = find("missing");
  notice.hidden = !asked || asked === name;
  notice.textContent = notice.hidden ? "" : `There is no graph ${asked} that can be read here: this is ${name}.`;
}

const choose = (name) => connect(name);

/** Whether a later attempt may succeed. */
const isPassing = (error) =>
  error instanceof Problem || error instanceof Unreachable || error.name === "AbortError";

/** Deals with an error of a task; the tasks that follow the graph go on after those that pass. */
function failed(error) {
  if (page.stop.signal.aborted) return;
  if (error instanceof Problem && error.isAboutKey) askForKey(error);
  else if (error instanceof Problem && error.type === "unknown-graph") connect();
  else if (!isPassing(error)) throw error;
}

async function watchChanges(name, whole) {
  feed = new AbortController();
  const signal = AbortSignal.any([whole, feed.signal]);
  const places = Number(find("top-places").value);
  refreshSoon = throttled(() => refreshTop(name, places, signal), TOP_PAUSE);
  for await (const { name: kind, change } of follow(name, places, signal, connection)) {
    if (kind === "change") {
      charts.add(change);
      changes.add(change, places);
    } else {
      if (kind === "gap") changes.note(now(), `some changes were missed (${change.reason})`);
      showTop(change.top);
    }
    refreshSoon();
  }
}

function showTop(places) {
  const time = now();
  const shown = places.map(({ vertex, rank }) => ({ vertex: keyOf(vertex), rank }));
  for (const { vertex, rank } of shown) ranks.add(time, vertex, rank);
  top.show(shown, page.opened, time);
}

/** Reads the places and the vertex again. */
async function refreshTop(name, places, signal) {
  if (document.hidden) return;
  try {
    const answer = await getJson(graphPath(name, `/top?k=${places}`), signal);
    if (signal.aborted) return;
    showTop(answer.ranks);
    await vertexView.refresh();
  } catch (error) {
    failed(error);
  }
}

/** A function that runs the task soon; of several calls in a short time, the last one counts. */
function throttled(task, pause) {
  let isRunning = false;
  let isWanted = false;
  return async () => {
    isWanted = true;
    if (isRunning) return;
    isRunning = true;
    while (isWanted) {
      isWanted = false;
      await task();
      await waited(pause);
    }
    isRunning = false;
  };
}

async function watchServer(name, signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        const graphs = await readGraphs(name);
        if (signal.aborted) return;
        if (!graphs.some(({ graph }) => graph === name)) return void connect();
        showInformation(graphs);
        const edges = await server.refresh(page.information);
        if (signal.aborted) return;
        page.edges = edges;
      } catch (error) {
        if (signal.aborted) return;
        if (!isPassing(error) || error.isAboutKey) throw error;
        server.showAway(error.message);
      }
    }
    await waited(SERVER_PAUSE);
  }
}

function showInformation(graphs) {
  page.information = graphs.find(({ graph }) => graph === page.graph);
  page.keys = page.information.options.keys;
  showGraphs(graphs, page.graph, choose);
  showSummary(page.information);
}

async function tick(_, signal) {
  while (!signal.aborted) {
    changes.draw();
    charts.tick(now(), page.information.options.target_error, page.edges);
    await waited(TICK);
  }
}

// What the user does

find("top-places").addEventListener("change", () => {
  feed.abort();
  top.reset();
  watchChanges(page.graph, page.stop.signal).catch(failed);
});

find("vertex-form").addEventListener("submit", (event) => {
  event.preventDefault();
  vertexView.lookUp(find("vertex-field").value);
});

/** Every element with a vertex looks it up, wherever it is. */
function lookUpFrom(event) {
  const chosen = event.target.closest("[data-vertex]");
  if (chosen === null) return;
  find("vertex-field").value = chosen.dataset.vertex;
  vertexView.lookUp(chosen.dataset.vertex);
  find("vertex-title").scrollIntoView({ block: "nearest" });
}
document.addEventListener("click", lookUpFrom);
document.addEventListener("keydown", (event) => {
  if (event.target instanceof SVGElement && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    lookUpFrom(event);
  }
});

find("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # is the name of the graph
  find("main").focus();
});
find("key-button").addEventListener("click", () => keyPanel.open(null, page.graph !== null));
addEventListener("hashchange", () => named() !== page.graph && connect(named()));
document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());

connect();

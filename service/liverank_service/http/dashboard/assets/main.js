// The page: connects, follows one graph, and gives what arrives to its parts.

import { getJson, graphPath, Problem, Unreachable } from "./api.js";
import { ChangeList } from "./changes.js";
import { Charts } from "./charts.js";
import { connection } from "./connection.js";
import { find } from "./dom.js";
import { follow, ofPlaces } from "./feed.js";
import { NO_WEIGHT, showGraphs, showSummary, showViews } from "./graphs.js";
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
const SHOWN_OF_VERTEX = 320; // pixels

const now = () => Date.now() / 1000;
const waited = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

startTheme();

const ranks = new Ranks();
const top = new TopTable(find("top"), ranks);
const charts = new Charts();
const changes = new ChangeList(ranks);
const server = new ServerView();
const keyPanel = new KeyPanel((graph) => connect(graph ? ofGraph(graph) : addressed()));

/**
 * What is shown.
 *
 * graph        its name
 * view         the name of the view whose ranks are shown; null for those of the graph
 * vertex       the key that was looked up last, or null
 * seen         the view, as GET /graphs/{graph}/views has it, or null
 * path         the path of a call about these ranks
 * information  as GET /graphs/{graph} has it
 * keys         what the keys of its vertices are: "string" or "integer"
 * isListed     whether the key may list graphs
 * stop         ends everything that belongs to the graph
 */
const page = {
  graph: null,
  view: null,
  vertex: null,
  seen: null,
  path: (call) => {
    const view = page.view === null ? "" : `${call.includes("?") ? "&" : "?"}view=${encodeURIComponent(page.view)}`;
    return graphPath(page.graph, call + view);
  },
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

/** What the address names after #: GRAPH?view=VIEW&vertex=VERTEX, where "" is no graph in particular. */
function addressed() {
  const [graph, ...rest] = location.hash.slice(1).split("?");
  const members = new URLSearchParams(rest.join("?"));
  try {
    return ofGraph(decodeURIComponent(graph), members.get("view"), members.get("vertex"));
  } catch {
    return ofGraph("");
  }
}

const ofGraph = (graph, view = null, vertex = null) => ({ graph, view, vertex });

/** Makes address and title those of what is shown. isChoice: whether the user can go back from it */
function address(isChoice) {
  const members = new URLSearchParams();
  for (const name of ["view", "vertex"]) if (page[name] !== null) members.set(name, page[name]);
  const hash = `#${encodeURIComponent(page.graph)}${members.size ? `?${members}` : ""}`;
  if (location.hash !== hash) history[isChoice ? "pushState" : "replaceState"](null, "", hash);
  document.title = [page.vertex, page.view, page.graph, "liverank"].filter((name) => name !== null).join(" · ");
}

let attempts = 0;

/** Finds the graphs that can be read, and opens one. wanted: of ofGraph; isChoice: see address */
async function connect(wanted = addressed(), isChoice = false) {
  page.stop.abort();
  page.isListed = true;
  attempts += 1;
  const attempt = attempts;
  connection({ state: "connecting" });
  try {
    const graphs = await readGraphs(wanted.graph || "default");
    await server.start();
    const names = graphs.map(({ graph }) => graph);
    const name = [wanted.graph, "default", names[0]].find((one) => names.includes(one));
    const views = name === undefined ? [] : await readViews(name);
    if (attempt !== attempts) return; // the user has chosen something else meanwhile
    keyPanel.close();
    if (name === undefined) await retryLater("There is no graph that can be read here yet.", wanted);
    else {
      const isThere = wanted.graph === "" || wanted.graph === name;
      const asked = isThere ? wanted : ofGraph(name);
      const view = views.some((one) => one.name === asked.view) ? asked.view : null;
      open(ofGraph(name, view, asked.vertex), graphs, views, isChoice);
      if (!isThere) showMissing(`There is no graph ${wanted.graph} that can be read here: this is ${name}.`);
      else if (view !== wanted.view) showMissing(`Graph ${name} has no view ${wanted.view}: these are the ranks of the graph.`);
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

const readViews = async (name) => (await getJson(graphPath(name, "/views"))).views;

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

function open({ graph: name, view, vertex }, graphs, views, isChoice) {
  page.stop.abort();
  page.stop = new AbortController();
  [page.graph, page.view, page.vertex] = [name, view, null];
  page.edges = null;
  page.opened = now();
  server.reset();
  ranks.clear();
  for (const part of [top, charts, changes, vertexView]) part.reset();
  find("content").hidden = false;
  find("missing").hidden = true;
  for (const part of document.querySelectorAll(".seen")) part.textContent = view === null ? "" : `view ${view}`;
  showInformation(graphs, views);
  if (vertex === null) address(isChoice);
  else lookUp(vertex, isChoice);
  const { signal } = page.stop;
  for (const task of [watchChanges, watchServer, tick]) {
    task(name, signal).catch((error) => signal.aborted || failed(error));
  }
}

/** Says that other ranks are shown than those asked for. */
function showMissing(text) {
  find("missing").textContent = text;
  find("missing").hidden = false;
}

const chooseGraph = (name) => connect(ofGraph(name), true);
const chooseView = (name) => connect(ofGraph(page.graph, name, page.vertex), true);

/** Whether a later attempt may succeed. */
const isPassing = (error) =>
  error instanceof Problem || error instanceof Unreachable || error.name === "AbortError";

/** Deals with an error of a task; the tasks that follow the graph go on after those that pass. */
function failed(error) {
  if (page.stop.signal.aborted) return;
  if (error instanceof Problem && error.isAboutKey) askForKey(error);
  else if (error instanceof Problem && error.isGone) connect();
  else if (!isPassing(error)) throw error;
}

async function watchChanges(name, whole) {
  feed = new AbortController();
  const signal = AbortSignal.any([whole, feed.signal]);
  const places = Number(find("top-places").value);
  refreshSoon = throttled(() => refreshTop(places, signal), TOP_PAUSE);
  for await (const { name: kind, change } of follow(page.path(`/changes?${ofPlaces(places)}`), signal, connection)) {
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
async function refreshTop(places, signal) {
  if (document.hidden) return;
  try {
    const answer = await getJson(page.path(`/top?k=${places}`), signal);
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
        const views = await readViews(name);
        if (signal.aborted) return;
        if (page.view !== null && !views.some((view) => view.name === page.view)) return void connect();
        showInformation(graphs, views);
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

function showInformation(graphs, views) {
  page.information = graphs.find(({ graph }) => graph === page.graph);
  page.keys = page.information.options.keys;
  page.seen = views.find(({ name }) => name === page.view) ?? null;
  showGraphs(graphs, page.graph, chooseGraph);
  showViews(page.information, views, page.view, chooseView);
  showSummary(page.information, page.seen);
  if (page.seen?.error_bound === null) top.say(`There are no ranks: ${page.seen.problem ?? NO_WEIGHT}.`);
}

async function tick(_, signal) {
  while (!signal.aborted) {
    changes.draw(now());
    charts.tick(now(), (page.seen ?? page.information.options).target_error, page.edges);
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
  lookUp(find("vertex-field").value);
});

function lookUp(text, isChoice = true) {
  page.vertex = page.keys === "integer" && /^-?\d{1,19}$/.test(text) ? String(BigInt(text)) : text;
  find("vertex-field").value = text;
  address(isChoice);
  vertexView.lookUp(page.vertex);
}

/** Every element with a vertex looks it up, wherever it is. */
function lookUpFrom(event) {
  const chosen = event.target.closest("[data-vertex]");
  if (chosen === null) return;
  lookUp(chosen.dataset.vertex);
  const panel = find("vertex-card");
  const { top: above, bottom } = panel.getBoundingClientRect();
  // where the panel is below the list, as on a phone, its title alone would not show the result
  if (above < 0 || Math.min(bottom, above + SHOWN_OF_VERTEX) > innerHeight) panel.scrollIntoView();
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
addEventListener("hashchange", () => {
  const wanted = addressed();
  if (wanted.graph !== page.graph || wanted.view !== page.view) connect(wanted);
  else if (wanted.vertex !== null && wanted.vertex !== page.vertex) lookUp(wanted.vertex, false);
  else if (wanted.vertex === null) {
    page.vertex = null;
    vertexView.reset();
    address(false);
  }
});
document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());

connect();

// Error bound, latency by stage and throughput: a row for each second with an event.

import { find } from "./dom.js";
import * as format from "./format.js";
import { Columns } from "./history.js";
import { Plot } from "./plots.js";

const GROUPS = [
  { label: "queue", colour: "stage-6", stages: ["queue"] },
  { label: "journal", colour: "stage-1", stages: ["journal"] },
  { label: "update", colour: "stage-2", stages: ["keys", "mutate"] },
  { label: "solve", colour: "stage-3", stages: ["mark", "solve", "certify"] },
  { label: "publish", colour: "stage-4", stages: ["watched", "publish"] },
  { label: "other", colour: "stage-5", stages: ["others"] },
].map((group) => ({ ...group, format: format.seconds }));

const RATE_SECONDS = 5;

/** Adds a count to those of the last seconds, and keeps two at least. */
function keep(counts, time, count) {
  counts.push({ time, count });
  while (counts.length > 2 && counts[1].time <= time - RATE_SECONDS) counts.shift();
}

/** Counts a second; null until there are two. A server that was restarted counts from 0. */
function rateOf(counts) {
  if (counts.length < 2) return null;
  const [first, last] = [counts[0], counts.at(-1)];
  return Math.max(0, last.count - first.count) / (last.time - first.time);
}

export class Charts {
  #events = [];
  #version = null;
  #versions = [];
  #edges = [];
  #stageSeconds = GROUPS.map(() => []);
  #bounds;
  #latencies;
  #rates;

  constructor() {
    this.bound = new Plot(find("bound-plot"), find("bound-legend"), {
      name: "Error bound",
      logarithmic: true,
      axes: { y: ["L1 error", (tick) => (/^[125]e/.test(tick.toExponential(0)) ? tick.toExponential(0) : "")] },
      series: [
        { label: "error bound", colour: "accent", format: format.bound },
        { label: "target", colour: "muted", format: format.bound, dashed: true },
      ],
    });
    this.latency = new Plot(find("latency-plot"), find("latency-legend"), {
      name: "Latency by stage",
      axes: { y: ["time of a batch", format.tick] },
      // each area is painted over the one before it: the sums of all groups, of all but the last, …
      series: GROUPS.toReversed().map((group) => ({ ...group, fill: "solid" })),
      shown: { labels: GROUPS, value: (place, row) => this.#stageSeconds[place][row] },
    });
    this.throughput = new Plot(find("throughput-plot"), find("throughput-legend"), {
      name: "Throughput",
      axes: { y: ["batches a second", format.short], edges: ["edges a second", format.short] },
      series: [
        { label: "batches/s", colour: "accent", format: format.short, step: true, fill: true },
        { label: "edges/s", colour: "stage-3", format: format.short, scale: "edges" },
      ],
    });
    this.reset();
  }

  reset() {
    this.#events = [];
    this.#version = null;
    this.#versions = [];
    this.#edges = [];
    this.#bounds = new Columns(2);
    this.#latencies = new Columns(GROUPS.length);
    this.#rates = new Columns(2);
    this.#draw();
  }

  add(change) {
    this.#events.push(change);
  }

  /** A second is over. edges: {time, total} of changed ones since the server started, or null */
  tick(now, targetError, edges) {
    const events = this.#events;
    this.#events = [];
    const timed = events.filter(({ seconds }) => "queue" in seconds);
    if (events.length) {
      const largest = Math.max(...events.map((event) => event.error_bound));
      this.#bounds.add(now, [largest || null, targetError]);
    }
    if (timed.length) {
      const mean = (stage) => timed.reduce((sum, { seconds }) => sum + (seconds[stage] ?? 0), 0) / timed.length;
      const values = GROUPS.map(({ stages }) => stages.reduce((sum, stage) => sum + mean(stage), 0));
      const sums = values.map((_, place) => values.slice(0, place + 1).reduce((sum, value) => sum + value, 0));
      this.#latencies.add(now, sums.toReversed());
    }
    if (events.length) this.#version = events.at(-1).version;
    if (this.#version !== null) {
      keep(this.#versions, now, this.#version);
      if (edges && edges.time !== this.#edges.at(-1)?.time) keep(this.#edges, edges.time, edges.total);
      this.#rates.add(now, [rateOf(this.#versions), edges ? rateOf(this.#edges) : null]);
    }
    this.#draw();
  }

  #draw() {
    if (document.hidden) return;
    const sums = this.#latencies.columns.slice(1).toReversed();
    this.#stageSeconds = sums.map((sum, place) => sum.map((value, row) => value - (sums[place - 1]?.[row] ?? 0)));
    this.bound.set(this.#bounds.columns);
    this.latency.set(this.#latencies.columns);
    this.throughput.set(this.#rates.columns);
  }
}

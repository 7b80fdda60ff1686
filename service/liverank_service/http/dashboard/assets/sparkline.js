// A line as small as a word: the course of one vertex since this page was opened.

import { svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 24;
const MARGIN = 3;
const SMALLEST_RANGE = 0.02; // of the highest: rounding must not look like movement

export function sparkline() {
  const line = svg("path", { class: "spark-line" });
  const end = svg("circle", { class: "spark-end", r: 2 });
  const box = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", focusable: "false" };
  const node = svg("svg", box, line, end);

  /** A Track of the vertex; start: when the page was opened; now: the right edge. */
  const draw = ({ times, ranks }, start, now) => {
    const low = Math.min(...ranks);
    const high = Math.max(...ranks);
    const range = Math.max(high - low, high * SMALLEST_RANGE, Number.MIN_VALUE);
    const middle = (low + high) / 2;
    const x = (time) => ((time - start) / Math.max(now - start, 1)) * (WIDTH - 2 * MARGIN) + MARGIN;
    const y = (rank) => HEIGHT / 2 - ((rank - middle) / range) * (HEIGHT - 2 * MARGIN);
    const points = times.map((time, place) => `${x(time).toFixed(1)} ${y(ranks[place]).toFixed(1)}`);
    const last = ranks.at(-1);
    line.setAttribute("d", `M${points.join("L")}L${x(now).toFixed(1)} ${y(last).toFixed(1)}`);
    end.setAttribute("cx", x(now).toFixed(1));
    end.setAttribute("cy", y(last).toFixed(1));
    node.dataset.trend = last > ranks[0] * 1.0005 ? "up" : last < ranks[0] * 0.9995 ? "down" : "flat";
  };
  return { node, draw };
}

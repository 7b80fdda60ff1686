// Plots over the last ten minutes: uPlot, with the colours of the page.

import { element } from "./dom.js";
import { colour, onTheme } from "./theme.js";

const SHORTEST = 60; // seconds on the time axis

/** A plot of Columns with its own legend, which shows the newest values or those at the cursor. */
export class Plot {
  #uplot = null;
  #data = [[]];

  /**
   * series  [{label, colour, format, scale, fill, dashed, step}]; values: rows of the columns
   * axes    {scale: [name, format of its ticks]}; the second is on the right
   * fitted  whether the axis fits the values instead of starting at 0
   * shown   values of the legend by row; the columns themselves unless given
   */
  constructor(box, legend, { name, series, axes, logarithmic = false, fitted = false, height = 190, shown = null }) {
    Object.assign(this, { box, name, series, axes, logarithmic, fitted, height, shown });
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", `${name}: no data yet`);
    this.blank = element("p", { class: "plot-empty" }, "No batch since this page was opened");
    box.append(this.blank);
    this.values = (shown?.labels ?? series).map((line) => {
      const swatch = element("span", { class: "swatch" });
      const value = element("span", { class: "value" }, "–");
      legend.append(element("li", {}, swatch, element("span", {}, line.label), value));
      return { line, swatch, value };
    });
    const resizes = new ResizeObserver(() => this.#resize());
    resizes.observe(box);
    const endTheme = onTheme(() => this.#rebuild());
    this.destroy = () => {
      resizes.disconnect();
      endTheme();
      this.#uplot?.destroy();
    };
    this.#colourLegend();
  }

  set(columns) {
    this.#data = columns;
    const isEmpty = columns[0].length === 0;
    this.blank.hidden = !isEmpty;
    if (!this.#uplot) this.#rebuild();
    this.#uplot?.setData(columns);
    this.#showValues(null);
    this.box.setAttribute("aria-label", `${this.name}: ${isEmpty ? "no data yet" : this.#spoken()}`);
  }

  #spoken() {
    return this.values.map(({ line, value }) => `${line.label} ${value.textContent}`).join(", ");
  }

  #showValues(index) {
    const last = index ?? this.#data[0].length - 1;
    this.values.forEach(({ line, value }, place) => {
      const number = this.shown ? this.shown.value(place, last) : this.#latest(place + 1, last);
      value.textContent = number === null || number === undefined ? "–" : line.format(number);
    });
  }

  #latest(column, index) {
    for (let row = index; row >= 0; row -= 1) {
      const value = this.#data[column][row];
      if (value !== null) return value;
    }
    return null;
  }

  #colourLegend() {
    for (const { line, swatch } of this.values) swatch.style.background = `var(--${line.colour})`;
  }

  #resize() {
    const width = this.box.clientWidth;
    if (this.#uplot && width > 0) this.#uplot.setSize({ width, height: this.height });
    else this.#rebuild();
  }

  #rebuild() {
    const width = this.box.clientWidth;
    if (width === 0 || this.#data[0].length === 0) return;
    this.#uplot?.destroy();
    this.#uplot = new uPlot(this.#options(width), this.#data, this.box);
  }

  #options(width) {
    const text = colour("muted");
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const grid = { stroke: colour("line"), width: 1 };
    const common = { stroke: text, font, labelFont: font, labelSize: 18, labelGap: 2, ticks: { show: false }, border: { show: false } };
    const axes = Object.entries(this.axes).map(([scale, [name, format]], place) => ({
      ...common,
      scale,
      label: name,
      size: widthOf,
      side: place === 0 ? 3 : 1,
      grid: place === 0 ? grid : { show: false },
      values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))),
    }));
    const scales = { x: { range: timeRange } };
    for (const scale of Object.keys(this.axes)) {
      if (this.logarithmic) scales[scale] = { distr: 3, range: steps };
      else scales[scale] = { range: this.fitted ? around : fromZero };
    }
    return {
      width,
      height: this.height,
      padding: [8, axes.length > 1 ? 0 : 24, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales,
      axes: [{ ...common, label: "time of day", grid: { show: false }, size: 24, space: 80, values: clockTimes }, ...axes],
      series: [{}, ...this.series.map(drawn)],
      hooks: { setCursor: [(plot) => this.#showValues(plot.cursor.idx ?? null)] },
    };
  }
}

function drawn(line) {
  const stroke = colour(line.colour);
  return {
    label: line.label,
    scale: line.scale ?? "y",
    stroke,
    width: line.fill === "solid" ? 0 : 1.75,
    fill: line.fill === "solid" ? stroke : line.fill ? colour(`${line.colour}-faint`) : undefined,
    dash: line.dashed ? [5, 5] : undefined,
    spanGaps: true,
    points: { show: isAlone, size: 5, fill: stroke },
    paths: line.step ? uPlot.paths.stepped({ align: -1 }) : undefined,
  };
}

/** Room for the longest tick, so that it does not reach the name of the axis. */
const widthOf = (_, ticks) => Math.max(48, 16 + 6 * Math.max(...(ticks ?? []).map((tick) => tick.length)));

/** A line needs two points. */
const isAlone = (plot, series) => plot.data[series].filter((value) => value !== null).length === 1;

/** From the first time to the last, at least a minute. For one time alone, uPlot says that a day follows it. */
function timeRange(plot) {
  const times = plot.data[0];
  const end = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? end, end - SHORTEST), end];
}

function clockTimes(_, ticks) {
  const apart = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  const style = { hour: "2-digit", minute: "2-digit", ...(apart < 60 ? { second: "2-digit" } : {}) };
  return ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB", style));
}

const fromZero = (_, low, high) => [0, high > 0 ? high * 1.12 : 1];

function around(_, low, high) {
  if (low === null || high === null) return [0, 1];
  const margin = Math.max((high - low) * 0.15, high * 0.01, Number.MIN_VALUE);
  return [Math.max(0, low - margin), high + margin];
}

function steps(_, low, high) {
  if (low === null || high === null) return [1e-9, 1e-6];
  return [stepBelow(low / 1.2), 1 / stepBelow(1 / (high * 1.2))];
}

/** The largest of 1, 2 and 5 times a power of ten that is not above a number. */
function stepBelow(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [5, 2, 1].find((step) => step === 1 || step * power <= number) * power;
}

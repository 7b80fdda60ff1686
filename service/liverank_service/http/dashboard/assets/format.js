// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en");

export const count = (value) => whole.format(value);

/** A rank: six decimals, or an exponent where these would hide it. */
export function rank(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1e-4 || value === 0 ? value.toFixed(6) : value.toExponential(2);
}

export const bound = (value) => (value === 0 ? "0" : value.toExponential(1));

/** The change from one rank to another, in per cent. */
export function change(from, to) {
  if (!from || !to) return "";
  const percent = (to / from - 1) * 100;
  if (Math.abs(percent) < 0.05) return "0.0 %";
  const sign = percent > 0 ? "+" : "−";
  const size = Math.abs(percent);
  return `${sign}${size >= 1000 ? count(Math.round(size)) : size.toFixed(1)} %`;
}

export function seconds(value) {
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 2 : 1)} ms`;
  return `${value.toFixed(2)} s`;
}

/** Seconds as a tick of an axis. */
export function tick(value) {
  if (value === 0) return "0";
  if (value < 1e-3) return `${+(value * 1e6).toPrecision(3)} µs`;
  return value < 1 ? `${+(value * 1e3).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${units[unit]}`;
}

/** A rate or a large count, short enough for an axis. */
export function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return value >= 100 ? count(Math.round(value)) : String(+value.toPrecision(2));
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const time = (unixSeconds) => clock.format(new Date(unixSeconds * 1000));

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

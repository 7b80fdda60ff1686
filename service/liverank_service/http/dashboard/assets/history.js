// What this page has seen since it was opened: ranks by vertex, and figures by second.

const POINTS = 240;
const VERTICES = 4000;

/** The ranks of one vertex over time. When it is full, every second point is dropped. */
class Track {
  constructor() {
    this.times = [];
    this.ranks = [];
    this.spacing = 0;
  }

  add(time, rank) {
    const last = this.times.length - 1;
    if (last > 0 && time - this.times[last - 1] < this.spacing) {
      this.times[last] = time;
      this.ranks[last] = rank;
      return;
    }
    this.times.push(time);
    this.ranks.push(rank);
    if (this.times.length <= POINTS) return;
    const kept = (_, place) => place % 2 === 0 || place === this.times.length - 1;
    this.ranks = this.ranks.filter(kept);
    this.times = this.times.filter(kept);
    this.spacing = (this.times.at(-1) - this.times[0]) / (POINTS * 0.6);
  }
}

/** Ranks by vertex; those that were seen longest ago are forgotten first. */
export class Ranks {
  #tracks = new Map();

  add(time, vertex, rank) {
    if (rank === null) return;
    const track = this.#tracks.get(vertex) ?? new Track();
    this.#tracks.delete(vertex);
    this.#tracks.set(vertex, track);
    track.add(time, rank);
    if (this.#tracks.size > VERTICES) this.#tracks.delete(this.#tracks.keys().next().value);
  }

  clear() {
    this.#tracks.clear();
  }

  of(vertex) {
    return this.#tracks.get(vertex) ?? null;
  }
}

const SECONDS = 600;

/** Columns for a plot, one row a second at most, of the last ten minutes. */
export class Columns {
  constructor(width) {
    this.columns = Array.from({ length: width + 1 }, () => []);
  }

  add(time, values) {
    [time, ...values].forEach((value, place) => this.columns[place].push(value));
    while (this.columns[0][0] < time - SECONDS) for (const column of this.columns) column.shift();
  }
}

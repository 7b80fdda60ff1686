// The change feed of a graph, continued after every interruption.

import { Problem, request } from "./api.js";
import { eventsOf } from "./events.js";
import { parse } from "./json.js";

const LONGEST_PAUSE = 15;
const SILENCE = 40_000; // ms: the server sends a comment every 15 s

export const THRESHOLD = 0.05;
const LIMIT = 100;

/** The query of a feed of so many places. */
export const ofPlaces = (places) => `top=${places}&threshold=${THRESHOLD}&limit=${LIMIT}`;

/**
 * Yields {name, change} for each event until the signal aborts.
 *
 * path: of the call, with its query
 * told: called with {state: "connecting" | "live"} or {state: "waiting", seconds, reason, retry}
 * Throws Problem where another attempt could not succeed without the user.
 */
export async function* follow(path, signal, told) {
  let last = null;
  let attempts = 0;
  while (!signal.aborted) {
    let reason;
    let pause = null;
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let watchdog = setTimeout(stop, SILENCE);
    try {
      told({ state: "connecting" });
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const response = await request(path, { headers, signal: attempt.signal, cache: "no-store" });
      told({ state: "live" });
      for await (const event of eventsOf(response)) {
        clearTimeout(watchdog);
        watchdog = setTimeout(stop, SILENCE);
        attempts = 0;
        if (event === null) continue;
        const change = parse(event.data);
        if (event.name === "end") throw new Problem(change.status, change);
        last = event.id;
        yield { name: event.name, change };
      }
      reason = "the connection ended";
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem) {
        if (error.isAboutKey || error.isGone) throw error;
        reason = error.message;
        pause = error.retryAfter;
      } else {
        reason = "the server cannot be reached";
      }
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    pause = Math.max(pause ?? 0, Math.min(2 ** attempts / 2, LONGEST_PAUSE) * (0.8 + 0.4 * Math.random()));
    attempts += 1;
    await waited(pause, reason, signal, told);
  }
}

function waited(seconds, reason, signal, told) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", resolve, { once: true });
    const retry = () => {
      clearTimeout(timer);
      resolve();
    };
    told({ state: "waiting", seconds, reason, retry });
  });
}

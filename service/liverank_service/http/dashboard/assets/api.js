// Calls of the API. The key is in this module's memory alone: not in an address, not in storage.

import { parse } from "./json.js";

/** A response with an error status: its problem document. */
export class Problem extends Error {
  constructor(status, document, retryAfter) {
    super(document.detail ?? document.title ?? `status ${status}`);
    this.status = status;
    this.type = (document.type ?? "").split(":").pop();
    this.retryAfter = Number(retryAfter) || null;
  }

  /** Whether the graph or the view is not there. A set or a vertex may come back. */
  get isGone() {
    return ["unknown-graph", "unknown-view"].includes(this.type);
  }

  /** Whether another API key could help. */
  get isAboutKey() {
    return this.status === 401 || this.status === 403;
  }
}

export class Unreachable extends Error {
  constructor() {
    super("the server cannot be reached");
  }
}

let key = null;

export function useKey(text) {
  key = text || null;
}

export const hasKey = () => key !== null;

/** The path of a graph, relative to this page. */
export const graphPath = (graph, rest = "") => `graphs/${encodeURIComponent(graph)}${rest}`;

export async function getJson(path, signal) {
  return parse(await textOf(path, { signal }));
}

export async function getText(path, signal) {
  return textOf(path, { signal });
}

/** body: JSON */
export async function postJson(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return parse(await textOf(path, { method: "POST", body, headers, signal }));
}

async function textOf(path, options) {
  const response = await request(path, options);
  return reached(response.text());
}

/** Throws Problem for an error status, Unreachable without a response. */
export async function request(path, { headers = {}, ...options } = {}) {
  const sent = key === null ? headers : { ...headers, Authorization: `Bearer ${key}` };
  const response = await reached(fetch(path, { ...options, headers: sent, credentials: "omit" }));
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Unreachable();
  }
}

async function problemOf(response) {
  let document = {};
  try {
    document = JSON.parse(await response.text());
  } catch {
    // a proxy's page
  }
  return new Problem(response.status, document, response.headers.get("Retry-After"));
}

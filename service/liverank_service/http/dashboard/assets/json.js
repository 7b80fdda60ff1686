// JSON with exact keys: a vertex key may be an integer of 64 bits, which a JavaScript number cannot
// hold. Integers of 16 digits and more become strings.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LARGE = /^-?\d{16,}$/;

export function parse(text) {
  return JSON.parse(text.replace(TOKEN, (token) => (LARGE.test(token) ? `"${token}"` : token)));
}

/** The key of a vertex, as every part of the page uses it. */
export const keyOf = (vertex) => String(vertex);

/** Keys as a JSON array for a graph whose keys are integers or strings; null if one cannot be. */
export function encodedKeys(keys, kind) {
  if (kind !== "integer") return JSON.stringify(keys);
  return keys.every((key) => /^-?\d{1,19}$/.test(key)) ? `[${keys.map((key) => BigInt(key)).join(",")}]` : null;
}

// Whether what is shown is live, and what to do if it is not.

import { announce, element, find } from "./dom.js";
import * as format from "./format.js";

const TEXTS = { connecting: "connecting", live: "live", locked: "needs an API key" };

let before = null;
let timer = null;

/** told: {state: "connecting" | "live" | "locked"} or {state: "waiting", seconds, reason, retry} */
export function connection(told) {
  clearInterval(timer);
  const isAway = told.state === "waiting" || (told.state === "connecting" && before === "waiting");
  find("connection").dataset.state = isAway ? "waiting" : told.state;
  find("content").dataset.stale = isAway;
  find("connection-text").textContent = TEXTS[told.state] ?? "disconnected";
  if (told.state === "waiting") {
    showWait(told);
    if (before !== "waiting") announce(`disconnected: ${told.reason}`);
  } else if (!isAway) {
    find("notice").hidden = true;
    if (before === "waiting") announce("connected again");
  }
  before = isAway ? "waiting" : told.state;
}

function showWait({ seconds, reason, retry }) {
  const notice = find("notice");
  const end = Date.now() + seconds * 1000;
  const since = notice.hidden ? Date.now() / 1000 : Number(notice.dataset.since);
  notice.dataset.since = since;
  const rest = element("span", { class: "value" });
  const count = () => {
    rest.textContent = `${Math.max(0, Math.ceil((end - Date.now()) / 1000))} s`;
  };
  const button = element("button", { type: "button", class: "quiet" }, "Try now");
  button.addEventListener("click", retry);
  const sentence = reason.replace(/\.$/, "");
  const text = `${sentence[0].toUpperCase()}${sentence.slice(1)}. Not connected since ${format.time(since)}; next attempt in `;
  notice.replaceChildren(element("span", {}, text, rest, "."), button);
  notice.hidden = false;
  count();
  timer = setInterval(count, 250);
}

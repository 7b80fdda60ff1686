// Light, dark, or as the system has it.

import { find } from "./dom.js";

const CHOICES = ["system", "light", "dark"];
const listeners = new Set();

export function startTheme() {
  let choice = stored();
  const button = find("theme-button");
  const show = () => {
    document.documentElement.dataset.theme = choice;
    button.textContent = `Theme: ${choice}`;
    for (const listener of listeners) listener();
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    try {
      localStorage.setItem("liverank-theme", choice);
    } catch {
      // storage is off: the choice lasts as long as the page
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

function stored() {
  try {
    const choice = localStorage.getItem("liverank-theme");
    return CHOICES.includes(choice) ? choice : "system";
  } catch {
    return "system";
  }
}

/** Calls the listener whenever colours change. Returns a function that ends that. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A colour of the style sheet, as a canvas needs it: custom properties may be light-dark(). */
export function colour(name) {
  const probe = find("connection");
  const before = probe.style.color;
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = before;
  return found;
}

// The panel for an API key, which goes from its field into the memory of api.js, and nowhere else.

import { hasKey, useKey } from "./api.js";
import { find } from "./dom.js";

export class KeyPanel {
  #panel = find("key-panel");
  #error = find("key-error");
  #field = find("key-field");

  /** connect: called with the name of a graph, or "" */
  constructor(connect) {
    find("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      useKey(this.#field.value.trim());
      this.#field.value = "";
      connect(find("graph-field").value.trim());
    });
    find("key-cancel").addEventListener("click", () => this.close());
  }

  /** problem: why a key is needed, or null; mayCancel: whether the page works without */
  open(problem, mayCancel) {
    const isRefused = problem !== null && hasKey();
    this.#error.hidden = !isRefused;
    this.#error.textContent = isRefused ? `Refused: ${problem.message}.` : "";
    this.#field.setAttribute("aria-invalid", String(isRefused));
    find("key-cancel").hidden = !mayCancel;
    this.#panel.hidden = false;
    this.#field.focus();
  }

  close() {
    this.#panel.hidden = true;
  }
}

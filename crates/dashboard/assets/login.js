// Who sits here: a token is asked for once, and the node gives a cookie for it.

import { h } from "./dom.js";
import { logIn, logOut } from "./api.js";
import { live } from "./live.js";

// In place of a view, if the node demands to know who asks.
export function loginForm() {
  const failed = h("p", { class: "failed", role: "alert", hidden: true });
  const token = h("input", { name: "token", type: "password", required: true, autocomplete: "off", placeholder: "hft_…" });
  const go = h("button", { type: "submit", class: "main" }, "Log in");
  const form = h("form", { class: "login" },
    h("h2", {}, "Log in"),
    h("p", { class: "note" }, "This node demands to know who asks. An administrator makes a token with ",
      h("code", {}, "holdfast access user create"), "."),
    h("label", { class: "field" }, "Token", token), failed, h("div", { class: "buttons" }, go));
  form.onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    failed.hidden = true;
    try {
      await logIn(token.value);
      location.reload();
    } catch (error) {
      failed.textContent = error.message;
      failed.hidden = false;
      token.select();
    } finally {
      go.disabled = false;
    }
  };
  return form;
}

// In the header, once the node has said who it takes this page for.
export function showPrincipal() {
  const button = document.getElementById("principal");
  button.hidden = !live.principal;
  if (!live.principal) return;
  if (button.textContent !== live.principal) button.textContent = live.principal;
  button.title = `Logged in as ${live.principal}; press to log out`;
  button.onclick = async () => {
    await logOut().catch(() => null);
    location.reload();
  };
}

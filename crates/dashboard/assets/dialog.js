// Doing something: what it means, who does it, why, and the secret. Nothing happens before it is confirmed.

import { h } from "./dom.js";
import { act } from "./api.js";
import { live } from "./live.js";

// Kept in this page alone, for as long as it is open.
let secret = "";

// A button that is there only if the node lets people act.
export function actionButton(label, attributes, open) {
  if (!live.actions) return null;
  return h("button", { type: "button", ...attributes, onclick: open }, label);
}

export function actionsNote() {
  if (live.actions) return null;
  return h("p", { class: "note" }, "Acting from here is off. It needs ", h("code", {}, "actions_secret_file"), " under ",
    h("code", {}, "[http]"), " in this node's configuration; the command line can always be used.");
}

// { action, title, means: nodes, confirm, danger, fields: [{ name, label, value, options, hint }], body: fields -> body, done: answer -> words }
export function confirm(plan, after) {
  const failed = h("p", { class: "failed", role: "alert", hidden: true });
  const by = h("input", { name: "by", required: true, maxlength: 200, autocomplete: "off", value: remembered() });
  const reason = h("input", { name: "reason", required: true, maxlength: 400, autocomplete: "off", placeholder: "recorded with the event" });
  const secretField = h("input", { name: "secret", type: "password", required: true, autocomplete: "off", value: secret });
  const fields = (plan.fields || []).map((field) => ({ ...field, input: input(field) }));
  const go = h("button", { type: "submit", class: plan.danger ? "main danger" : "main" }, plan.confirm);
  const close = () => dialog.close();
  const form = h("form", {},
    h("h2", { id: "dialog-title" }, plan.title), plan.means,
    fields.map((field) => h("label", { class: "field" }, field.label, field.input)),
    h("label", { class: "field" }, "Why", reason),
    live.principal ? null : h("label", { class: "field" }, "Who you are", by),
    live.principal ? null : h("label", { class: "field" }, "Secret", secretField),
    failed,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), go));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    failed.hidden = true;
    const values = Object.fromEntries(fields.map((field) => [field.name, field.input.value]));
    try {
      const answer = await act(plan.action, secretField.value, { by: live.principal || by.value, reason: reason.value, ...plan.body(values) });
      secret = secretField.value;
      if (!live.principal) remember(by.value);
      dialog.close();
      announce(plan.done(answer));
      after();
    } catch (error) {
      failed.textContent = error.mayHaveHappened ? `${error.message}; it may have happened all the same: look before you try again` : error.message;
      failed.hidden = false;
      if (error.reason === "wrong_secret") secretField.select();
    } finally {
      go.disabled = false;
    }
  };
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  (fields[0] ? fields[0].input : reason).focus();
}

function input(field) {
  if (!field.options) return h("input", { name: field.name, required: !field.optional, autocomplete: "off", value: field.value || "", placeholder: field.hint });
  return h("select", { name: field.name, required: true }, field.options.map(([value, label]) => h("option", { value: value, selected: value === field.value }, label)));
}

function announce(words) {
  document.getElementById("announce").textContent = words;
}

// A name is no secret; where storage is forbidden it is asked for again.
function remembered() {
  try { return localStorage.getItem("holdfast-by") || ""; } catch { return ""; }
}

function remember(name) {
  try { localStorage.setItem("holdfast-by", name); } catch { /* asked for again */ }
}

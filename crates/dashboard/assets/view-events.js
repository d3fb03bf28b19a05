// What happens, as it happens.

import { h, table, card, empty } from "./dom.js";
import { shown, clock, number, duration } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";
import { cycleWords } from "./cycle.js";

const KEPT_MAX = 200;
// However fast they come, so often they are drawn.
const DRAW_EVERY_MS = 250;
const KINDS = [
  ["grants", ["granted", "converted", "proclaimed", "transferred"]], ["queueing", ["queued", "wait_ended"]], ["releases", ["released", "reopened"]],
  ["losses", ["expired", "wounded", "broken", "killed"]], ["refusals", ["refused"]], ["interventions", ["intervened", "frozen", "thawed"]],
  ["sessions", ["session_opened", "session_ended"]],
];

const state = { source: null, list: [], skipped: 0, gap: false, paused: false, held: [], waiting: 0, interrupted: "" };
let typing = 0;
let drawing = 0;

export const events = {
  title: "Events",
  every: 1e9,
  enter(page) {
    const { prefix, kinds } = parameters(page.parameters);
    follow(page, prefix, kinds);
  },
  leave() {
    stop();
  },
  async load(asked) {
    const { prefix, kinds } = parameters(asked);
    const recent = await ask("recent", { prefix, kinds });
    const known = new Set(state.list.map((event) => event.position));
    state.list = [...state.list, ...recent.events.filter((event) => !known.has(event.position))].slice(0, KEPT_MAX);
    return {};
  },
  render(data, page) {
    const asked = page.parameters;
    const chosen = new Set((asked.show || "").split(",").filter(Boolean));
    const toggle = (group) => () => {
      if (chosen.has(group)) chosen.delete(group);
      else chosen.add(group);
      page.go({ ...asked, show: [...chosen].join(",") });
    };
    return [
      h("div", { class: "head" }, h("h1", {}, "Events"), h("span", { class: "grow" }),
        h("button", { type: "button", id: "pause", "aria-pressed": String(state.paused), onclick: () => pause(page) },
          state.paused ? `Go on${state.waiting ? ` (${number(state.waiting)} new)` : ""}` : "Pause"),
        h("p", {}, "What the lock table did, the latest first. Times are by the clock of the node that tells them, in your time zone."), key()),
      h("form", { class: "row", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "field" }, "Name begins with",
          h("input", { type: "search", id: "prefix", value: asked.prefix || "", maxlength: 512, autocomplete: "off", spellcheck: "false", oninput: (event) => {
            const value = event.target.value;
            clearTimeout(typing);
            typing = setTimeout(() => page.go({ ...asked, prefix: value }), 300);
          } })),
        h("fieldset", { class: "chips" }, h("legend", { class: "unseen" }, "Kinds of events"),
          KINDS.map(([group]) => h("label", { class: "chip" }, h("input", { type: "checkbox", checked: chosen.has(group), onchange: toggle(group) }), group)))),
      state.interrupted ? h("p", { class: "note" }, `Interrupted: ${state.interrupted}. It goes on by itself.`) : null,
      card("Events", told(), state.list.length ? eventTable(state.list, false) : empty("Nothing has happened yet that matches. Events appear here by themselves.")),
    ];
  },
};

// What the colours of the kinds mean.
function key() {
  return h("p", { class: "key" }, [["granted", "got it"], ["queued", "waits"], ["expired", "ended without being given back, or frozen"], ["broken", "refused, or by an operator"]].map(([kind, words]) =>
    h("span", { class: `kind-${kind}` }, words)));
}

function told() {
  const words = [];
  if (state.skipped) words.push(`${number(state.skipped)} more came too fast to be shown`);
  if (state.gap) words.push("some are missing: this page did not keep up");
  return words.join(" · ") || `the last ${number(state.list.length)}`;
}

function parameters(asked) {
  const chosen = (asked.show || "").split(",");
  const kinds = KINDS.filter(([group]) => chosen.includes(group)).flatMap(([, names]) => names);
  return { prefix: asked.prefix || "", kinds: kinds.join(",") };
}

function follow(page, prefix, kinds) {
  stop();
  const query = new URLSearchParams({ prefix, kinds });
  const source = new EventSource(`/api/events?${query}`);
  state.source = source;
  source.addEventListener("events", (message) => {
    const fresh = JSON.parse(message.data).reverse();
    state.interrupted = "";
    if (state.paused) {
      state.waiting += fresh.length;
      state.held = [...fresh, ...state.held].slice(0, KEPT_MAX);
      return;
    }
    state.list = [...fresh, ...state.list].slice(0, KEPT_MAX);
    drawSoon(page);
  });
  source.addEventListener("watching", () => { state.interrupted = ""; });
  source.addEventListener("skipped", (message) => { state.skipped += JSON.parse(message.data).events; });
  source.addEventListener("gap", () => { state.gap = true; });
  source.addEventListener("interrupted", (message) => { state.interrupted = JSON.parse(message.data).words || "the leader has moved"; });
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED || state.source !== source) return;
    setTimeout(() => { if (state.source === source) follow(page, prefix, kinds); }, 1000);
  };
}

function drawSoon(page) {
  if (drawing) return;
  drawing = setTimeout(() => { drawing = 0; page.draw(); }, DRAW_EVERY_MS);
}

function stop() {
  if (state.source) state.source.close();
  Object.assign(state, { source: null, list: [], skipped: 0, gap: false, paused: false, held: [], waiting: 0, interrupted: "" });
}

function pause(page) {
  state.paused = !state.paused;
  state.list = [...state.held, ...state.list].slice(0, KEPT_MAX);
  state.held = [];
  state.waiting = 0;
  page.draw();
}

// For a list of one lock the name is not repeated.
export function eventTable(list, ofOneLock) {
  const columns = [{ label: "What", class: "fit" }, { label: "When", class: "fit mono" }, ...(ofOneLock ? [] : [{ label: "Lock", class: "name" }]),
    { label: "Session", class: "fit mono" }, { label: "Token", class: "num" }, { label: "Details" }];
  return table(columns, list.map((event) => ({
    key: event.position,
    cells: [
      h("span", { class: `kind kind-${event.kind}` }, event.kind.replaceAll("_", " ")),
      clock(event.unix_ms),
      ...(ofOneLock ? [] : [names(event)]),
      event.session ? h("a", { title: `who session ${event.session} is`, href: address("sessions", { contains: event.session }) }, event.session.slice(0, 8)) : "", event.token, details(event),
    ],
  })), "Events");
}

function names(event) {
  if (event.kind === "frozen" || event.kind === "thawed") return event.names[0] ? shown(event.names[0]) : "everything";
  return event.names.slice(0, 3).map((name, at) => [at ? ", " : "", h("a", { href: address("lock", { name }) }, shown(name))]);
}

function details(event) {
  if (event.cycle.length) return ["deadlock: ", cycleWords(event.cycle)];
  const held = event.held_for_ms === null ? null : `held for ${duration(event.held_for_ms)}${event.detail ? ", " : ""}`;
  return [held, event.by ? ["by ", shown(event.by), event.detail ? ": " : ""] : null, event.detail ? shown(event.detail) : null,
    event.metadata ? h("span", { class: "sub" }, "“", shown(event.metadata.length > 120 ? `${event.metadata.slice(0, 119)}…` : event.metadata), "”") : null];
}

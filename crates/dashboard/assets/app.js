// The frame: which view is shown, when it is asked for again, how the connection is.

import { h, morphChildren } from "./dom.js";
import { clock, shown } from "./text.js";
import { address, parse } from "./route.js";
import { live, connect, disconnect, onBeat } from "./live.js";
import { loginForm, showPrincipal } from "./login.js";
import { overview } from "./view-overview.js";
import { locks } from "./view-locks.js";
import { lock } from "./view-lock.js";
import { graph } from "./view-graph.js";
import { sessions } from "./view-sessions.js";
import { events } from "./view-events.js";
import { elections } from "./view-elections.js";
import { groups } from "./view-groups.js";
import { isDivided, warning, withoutLeader } from "./groups.js";

// A view: { title, every (beats between two loads), load(parameters) -> data, render(data, page) -> nodes, leave() }.
const VIEWS = { "": overview, groups, locks, lock, graph, sessions, events, elections };
// With one group there is nothing to see in "Groups".
const TABS = [["", "Overview"], ["groups", "Groups"], ["locks", "Locks"], ["graph", "Wait-for graph"], ["sessions", "Sessions"], ["events", "Events"], ["elections", "Elections"]];

const main = document.getElementById("main");
let page = null;

function route() {
  const { path, parameters } = parse(location.hash);
  const id = Object.hasOwn(VIEWS, path) ? path : "";
  return { id, view: VIEWS[id], parameters };
}

function open() {
  if (location.hash === "#main") {
    history.replaceState(null, "", page ? address(page.id, page.parameters) : "#/");
    main.focus();
    return;
  }
  const next = route();
  const same = page && page.id === next.id;
  if (page && !same && page.view.leave) page.view.leave();
  page = { ...next, data: same ? page.data : null, failed: "", beats: 0, loading: false,
    go: (parameters) => { history.replaceState(null, "", address(next.id, parameters)); open(); },
    refresh: () => load(page), draw };
  if (same && next.view.keyed) page.data = null;
  for (const tab of document.querySelectorAll("#tabs a")) {
    if (tab.dataset.id === (next.id === "lock" ? "locks" : next.id)) {
      tab.setAttribute("aria-current", "page");
      tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else tab.removeAttribute("aria-current");
  }
  document.title = `${next.view.title} · Holdfast`;
  if (!same) main.replaceChildren(h("p", { class: "loading" }, "Loading…"));
  if (page.view.enter) page.view.enter(page);
  load(page);
}

async function load(asked) {
  if (asked.loading) return;
  asked.loading = true;
  asked.beats = 0;
  try {
    const data = await asked.view.load(asked.parameters);
    if (page !== asked) return;
    asked.data = data;
    asked.failed = "";
  } catch (error) {
    if (error.reason === "unauthenticated") return askForLogin();
    asked.failed = error.message;
  } finally {
    asked.loading = false;
  }
  draw();
}

// It stays until a user has logged in, and then the page is loaded again.
function askForLogin() {
  if (!main.querySelector("form.login")) main.replaceChildren(loginForm());
  page = null;
  disconnect();
  document.getElementById("connection").textContent = "not logged in";
}

function draw() {
  if (!page || page.data === null) {
    if (page && page.failed) main.replaceChildren(h("p", { class: "loading" }, `This cannot be shown now: ${page.failed}. Trying again. `, h("a", { href: "#/" }, "What this node knows by itself")));
    banner();
    return;
  }
  const wanted = h("main", {}, page.view.render(page.data, page));
  morphChildren(main, wanted);
  main.classList.toggle("stale", live.state === "lost" || page.failed !== "");
  banner();
}

function banner() {
  const element = document.getElementById("banner");
  let words = "";
  if (live.state === "lost") words = "Connection to the node lost; retrying. What you see may be old.";
  else if (isDivided(live.now) && warning(live.now.groups)) words = warning(live.now.groups);
  else if (live.now && !isDivided(live.now) && live.now.leader === 0) words = `The cluster has no leader${leaderlessSince(live.now)}: nothing is granted until one is elected.`;
  else if (page && page.failed && page.data !== null) words = `Not up to date: ${page.failed}. Trying again.`;
  if (element.textContent !== words) element.textContent = words;
}

function leaderlessSince(now) {
  const since = now.leaderless_since_unix_ms;
  return since ? ` since ${clock(since).slice(0, 8)}` : " at the moment";
}

function header() {
  const pill = document.getElementById("connection");
  const [words, tone] = live.state === "lost" ? ["connection lost, retrying", "is-bad"]
    : live.state === "connecting" ? ["connecting", ""] : leadership(live.now);
  pill.className = `pill ${tone}`;
  pill.title = "Green: this page hears from its node every second, and the cluster has a leader, in each of its groups. Red: one of the two is not so. Grey: it is just connecting.";
  if (pill.textContent !== words) pill.textContent = words;
  showPrincipal();
  if (live.now) document.getElementById("cluster").replaceChildren(shown(live.now.cluster));
  document.querySelector("#tabs [data-id=groups]").hidden = !isDivided(live.now);
}

function leadership(now) {
  const missing = now ? withoutLeader(now.groups).length : 0;
  if (isDivided(now)) {
    const all = now.groups.length;
    return missing ? [`${missing} of ${all} groups not led`, "is-bad"] : [`live · ${all} groups led`, "is-good"];
  }
  return now && now.leader !== 0 ? [`live · node ${now.leader} leads`, "is-good"] : ["no leader", "is-bad"];
}

function onEachBeat() {
  header();
  if (!page) return;
  page.beats += 1;
  const due = page.beats >= (page.view.every || 1) && !document.hidden && live.state === "live";
  if (due) load(page);
  else draw();
}

const THEMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };

function theme(chosen) {
  const button = document.getElementById("theme");
  if (chosen === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", chosen);
  const icon = { auto: "◐", light: "○", dark: "●" }[chosen];
  button.replaceChildren(h("span", { "aria-hidden": true }, icon), h("span", { class: "label" }, THEMES[chosen]));
  button.title = `${THEMES[chosen]}; press to change it`;
  button.setAttribute("aria-label", `${THEMES[chosen]}; change`);
  button.onclick = () => {
    const next = { auto: "light", light: "dark", dark: "auto" }[chosen];
    try { localStorage.setItem("holdfast-theme", next); } catch { /* only until it is closed */ }
    theme(next);
  };
}

function remembered() {
  try { return THEMES[localStorage.getItem("holdfast-theme")] ? localStorage.getItem("holdfast-theme") : "auto"; } catch { return "auto"; }
}

theme(remembered());
document.getElementById("tabs").append(...TABS.map(([id, label]) => h("a", { href: `#/${id}`, "data-id": id, hidden: id === "groups" }, label)));
addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => {
  if (!page) return;
  if (document.hidden) {
    if (page.view.leave) page.view.leave();
    return;
  }
  if (page.view.enter) page.view.enter(page);
  load(page);
});
onBeat(onEachBeat);
open();
connect();

// Is the cluster well, and what is contended?

import { h, table, card, bar, empty } from "./dom.js";
import { shown, number, milliseconds, duration, count } from "./text.js";
import { live } from "./live.js";
import { ask } from "./api.js";
import { plot } from "./plot.js";
import { ownView } from "./own-view.js";
import { address } from "./route.js";
import { isDivided, ledBy, named, withoutLeader } from "./groups.js";
import { actionButton, actionsNote, confirm } from "./dialog.js";

export const overview = {
  title: "Overview",
  every: 2,
  async load() {
    const isLed = live.now && live.now.groups.some((group) => group.leader !== 0);
    const own = isLed ? null : await ask("own");
    if (own && own.groups.every((group) => group.leader === 0)) return { own, why: "" };
    try {
      return await loadFromLeader();
    } catch (error) {
      if (error.reason === "unreachable") throw error;
      // Lists need all groups; the rest of the page does not.
      if (isLed && isDivided(live.now)) return { busiest: null, freezes: null, why: error.message };
      return { own: await ask("own"), why: error.message };
    }
  },
  render(data, page) {
    if (data.own) return ownView(data.own, data.why);
    const now = live.now;
    if (!now) return [h("p", { class: "loading" }, "Waiting for the first second…")];
    const samples = known(live.samples);
    const last = samples[samples.length - 1] || {};
    return [
      h("div", { class: "head" }, h("h1", {}, "Overview"), h("span", { class: "grow" }),
        h("span", { class: "note" }, `version ${now.version} · this page comes from node ${live.node}`)),
      tiles(now, last),
      h("div", { class: "columns" },
        plot("Operations per second", samples, [
          { label: "granted", of: (sample) => sample.granted },
          { label: "queued", of: (sample) => sample.queued },
          { label: "lost", of: (sample) => sample.lost }]),
        plot("Time to acquire", samples, [
          { label: "p50", of: (sample) => sample.p50 },
          { label: "p95", of: (sample) => sample.p95 },
          { label: "p99", of: (sample) => sample.p99 }], milliseconds),
        plot("Locks and waiters", samples, [
          { label: "locks", of: (sample) => sample.locks },
          { label: "waiters", of: (sample) => sample.waiters },
          { label: "sessions", of: (sample) => sample.sessions }])),
      nodes(now),
      data.busiest ? h("div", { class: "columns" }, busiest(data.busiest), freezes(data.freezes, page))
        : card("Longest queues and frozen prefixes", null, empty("They cannot be shown now: ", shown(data.why), ".")),
    ];
  },
};

async function loadFromLeader() {
  const [busiest, frozen] = await Promise.all([ask("locks", { sort: "queue", size: 6 }), ask("freezes")]);
  return { busiest: busiest.locks.filter((lock) => lock.waiters > 0), freezes: frozen.freezes };
}

// Rates need two seconds: before the first of them there is nothing to plot.
function known(samples) {
  const first = samples.findIndex((sample) => sample.granted !== undefined);
  return first < 0 ? samples : samples.slice(first);
}

function tiles(now, last) {
  const sum = (of) => now.groups.reduce((all, group) => all + group[of], 0);
  const up = now.nodes.filter((node) => node.up).length;
  const tile = (label, value, sub) => h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value), sub ? h("div", { class: "sub" }, sub) : null);
  return h("dl", { class: "tiles" },
    tile("Nodes up", [up, h("small", {}, ` of ${now.nodes.length}`)], leaders(now)),
    tile("Locks in use", number(sum("locks")), "held or awaited"),
    tile("Waiters", number(sum("waiters")), "places in queues"),
    tile("Sessions", number(sum("sessions")), isDivided(now) ? "of all groups" : "clients"),
    tile("Grants", [number(last.granted ?? null), h("small", {}, " /s")], `${number(last.released ?? null)} releases /s`),
    tile("Acquire p50", milliseconds(last.p50 ?? null), "of the last second"),
    tile("Acquire p99", milliseconds(last.p99 ?? null), "time in queues included"),
    tile("Leader changes", now.leader_changes, isDivided(now) ? "of group 1, in 5 minutes" : "in 5 minutes"));
}

function leaders(now) {
  if (!isDivided(now)) return now.leader ? `node ${now.leader} leads` : "no leader";
  const missing = withoutLeader(now.groups);
  if (missing.length === 0) return `${now.groups.length} groups, all led`;
  return h("span", { class: "tag is-bad" }, missing.length > 1 ? `${missing.length} groups not led` : `${named(missing)} not led`);
}

function nodes(now) {
  const tone = { leader: "is-accent", learner: "is-warn", entering: "is-warn", leaving: "is-warn" };
  const rows = now.nodes.map((node) => ({
    key: String(node.id),
    cells: [
      [h("strong", {}, `node ${node.id}`), " ", h("span", { class: "sub mono" }, node.address)],
      h("span", { class: `tag ${node.up ? tone[node.role] || "" : "is-bad"}` }, node.up ? node.role : "not answering"),
      ...(isDivided(now) ? [count(ledBy(now.groups, node.id), "group", "groups")] : [number(node.term), number(node.applied_index)]),
      node.lag === null ? "–" : node.lag === 0 ? "0" : number(node.lag),
    ],
  }));
  const columns = [{ label: "Node" }, { label: "Role", class: "fit" },
    ...(isDivided(now) ? [{ label: "Leads", class: "num" }] : [{ label: "Term", class: "num" }, { label: "Applied index", class: "num" }]),
    { label: "Entries behind", class: "num" }];
  const note = isDivided(now) ? h("a", { href: address("groups") }, `all ${now.groups.length} groups`)
    : now.groups.map((group) => `group ${group.group}: term ${number(group.term)}, ${count(group.commit_index, "entry", "entries")} committed`);
  return card("Nodes", note, table(columns, rows, "Nodes of the cluster"));
}

function busiest(locks) {
  const most = Math.max(1, ...locks.map((lock) => lock.waiters));
  const body = locks.length === 0
    ? empty("No request waits for a lock.")
    : table([{ label: "Lock", class: "name" }, { label: "Queue", class: "num" }, { label: "Held for", class: "num" }],
      locks.map((lock) => ({
        key: lock.name, link: true,
        cells: [h("a", { href: address("lock", { name: lock.name }) }, shown(lock.name)),
          [bar(lock.waiters / most), number(lock.waiters)],
          lock.holders ? duration(lock.held_for_ms) : "free"],
      })), "Locks with the longest queues");
  return card("Longest queues", h("a", { href: address("locks", { sort: "queue" }) }, "all locks"), body);
}

function freezes(frozen, page) {
  const rows = frozen.map((freeze) => ({
    key: freeze.prefix,
    cells: [freeze.prefix ? shown(freeze.prefix) : "everything",
      [shown(freeze.reason), h("div", { class: "sub" }, "by ", shown(freeze.by))],
      duration(freeze.remaining_ms),
      actionButton("Thaw", { class: "small" }, () => thaw(freeze, page))],
  }));
  const body = frozen.length === 0
    ? empty("Nothing is frozen. Under a frozen prefix nothing is granted until it is thawed.")
    : table([{ label: "Prefix", class: "name" }, { label: "Why" }, { label: "Ends in", class: "num" }, { label: "", class: "fit" }], rows, "Frozen prefixes");
  return card("Frozen prefixes", actionButton("Freeze a prefix…", { class: "small" }, () => freeze(page)), body,
    live.actions ? null : h("div", { class: "body" }, actionsNote()));
}

function thaw(freeze, page) {
  confirm({
    action: "thaw", title: "Thaw a prefix", confirm: "Thaw",
    means: [h("p", { class: "subject name" }, freeze.prefix ? shown(freeze.prefix) : "everything"), h("p", {}, "Those who wait under it are served at once.")],
    body: () => ({ prefix: freeze.prefix }),
    done: () => "thawed",
  }, page.refresh);
}

function freeze(page) {
  confirm({
    action: "freeze", title: "Freeze a prefix", confirm: "Freeze", danger: true,
    means: h("p", {}, "Nothing under it is granted until the time is over or it is thawed. What is held stays held; releases and deadlines go on."),
    fields: [{ name: "prefix", label: "Prefix (empty: everything)", optional: true, hint: "billing/" },
      { name: "ttl", label: "For", value: "600000", options: [["60000", "1 minute"], ["600000", "10 minutes"], ["3600000", "1 hour"], ["86400000", "1 day"]] }],
    body: (fields) => ({ prefix: fields.prefix, ttl_ms: Number(fields.ttl) }),
    done: () => "frozen",
  }, page.refresh);
}


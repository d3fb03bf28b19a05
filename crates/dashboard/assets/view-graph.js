// Who waits for whom, drawn: those who wait on the left, what they wait for to the right of them, and on the
// far right those whom nothing holds up.

import { h, s, card, table, empty } from "./dom.js";
import { shown, plain, whoText, who, number, clock } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";
import { cycleWords } from "./cycle.js";
import { BOX, layout } from "./graph-layout.js";

// How a box looks, and what that means.
const KINDS = [["lock", "a lock"], ["holder", "holds, and waits for nothing"], ["stuck", "holds something, and waits itself"], ["session", "only waits"]];

export const graph = {
  title: "Wait-for graph",
  every: 2,
  load: () => ask("graph"),
  render(data) {
    return [
      h("div", { class: "head" }, h("h1", {}, "Wait-for graph"),
        h("p", {}, "Arrows point at what is waited for: from a session to a lock, from a lock to its holder. Each task of a client waits for itself, so a client can appear twice.")),
      card("Now", [data.more ? "the 30 longest queues " : null, key()], data.locks.length ? drawing(data.locks) : empty("No request waits.")),
      card("Cycles that were refused", "a wait that would close a cycle is refused at once", cycles(data.cycles)),
      data.locks.length ? card("The same in words", null, words(data.locks)) : null,
    ];
  },
};

function key() {
  return h("span", { class: "key" }, KINDS.map(([kind, words]) => h("span", { class: `of-${kind}` }, words)));
}

// Nodes by key, each with what it waits for (`to`). Several tasks of one session wait and hold each for itself.
function network(locks) {
  const nodes = new Map();
  const add = (key, make) => {
    if (!nodes.has(key)) nodes.set(key, { key, to: new Map(), ...make() });
    return nodes.get(key);
  };
  const session = (one) => add(`s ${one.session} ${one.actor}`, () => ({ kind: "session", label: whoText(one.owner, one.session, 20), full: `${whoText(one.owner, one.session)}, session ${one.session}, actor ${one.actor}`, sub: one.session.slice(0, 8), href: address("sessions", { contains: one.session }) }));
  for (const lock of locks) {
    const node = add(`l ${lock.name}`, () => ({ kind: "lock", label: plain(lock.name, 17), full: plain(lock.name), sub: `${number(lock.waiter_count)} waiting`, href: address("lock", { name: lock.name }) }));
    for (const holder of lock.holders) {
      const held = session(holder);
      held.holds = true;
      node.to.set(held.key, "holds");
    }
    for (const waiter of lock.waiters) session(waiter).to.set(node.key, "waits");
    const more = lock.waiter_count - lock.waiters.length;
    if (more > 0) {
      const rest = add(`m ${lock.name}`, () => ({ kind: "more", label: `${number(more)} more`, sub: "in the same queue", href: address("lock", { name: lock.name }) }));
      rest.to.set(node.key, "waits");
    }
  }
  return nodes;
}

function drawing(locks) {
  const nodes = network(locks);
  const size = layout(nodes);
  const arrows = size.arrows.map((arrow) => s("path", { class: arrow.kind, d: arrow.d, "marker-end": "url(#arrow)" }));
  const boxes = [...nodes.values()].map((node) => {
    const role = node.kind === "session" && node.holds ? (node.to.size ? "stuck" : "holder") : node.kind;
    return s("a", { href: node.href, class: role },
      s("title", {}, node.full || node.label),
      s("rect", { x: node.x, y: node.y, width: BOX.width, height: BOX.height, rx: 6 }),
      s("text", { x: node.x + 9, y: node.y + 16 }, node.label),
      s("text", { x: node.x + 9, y: node.y + 29, class: "small" }, node.sub));
  });
  return h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Wait-for graph; the same is told in words below" },
    s("svg", { width: size.width, height: size.height, viewBox: `0 0 ${size.width} ${size.height}` },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, s("path", { d: "M0 0L8 4L0 8z" }))),
      arrows, boxes));
}

function cycles(list) {
  if (list.length === 0) return empty("None lately.");
  return table([{ label: "When", class: "fit mono" }, { label: "Refused", class: "name" }, { label: "The cycle" }], list.map((event) => ({
    key: event.position,
    cells: [clock(event.unix_ms), event.names.map((name, at) => [at ? ", " : "", h("a", { href: address("lock", { name }) }, shown(name))]), cycleWords(event.cycle)],
  })), "Cycles that were refused");
}

function words(locks) {
  return table([{ label: "Lock", class: "name" }, { label: "Held by" }, { label: "Waiting, first in line first" }], locks.map((lock) => ({
    key: lock.name,
    cells: [h("a", { href: address("lock", { name: lock.name }) }, shown(lock.name)),
      lock.holders.length ? lock.holders.map((one, at) => [at ? ", " : "", who(one.owner, one.session)]) : "no holder",
      [lock.waiters.map((one, at) => [at ? ", " : "", who(one.owner, one.session)]), lock.waiter_count > lock.waiters.length ? ` and ${number(lock.waiter_count - lock.waiters.length)} more` : null]],
  })), "Who waits for whom");
}

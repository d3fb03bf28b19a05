// Who waits for whom, drawn: those who wait on the left, what they wait for to the right of them, and on the
// far right those whom nothing holds up.

import { h, s, card, table, empty } from "./dom.js";
import { shown, plain, whoText, who, number, clock } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";

const BOX = { width: 142, height: 36 };
const STEP = { x: 174, y: 46 };
const DEPTH_MAX = 12;

export const graph = {
  title: "Wait-for graph",
  every: 2,
  load: () => ask("graph"),
  render(data) {
    return [
      h("div", { class: "head" }, h("h1", {}, "Wait-for graph"),
        h("p", {}, "Arrows point at what is waited for: from a session to a lock, from a lock to whoever holds it. Green holds and waits for nothing; amber holds something and waits itself; white only waits. Each task of a client waits for itself, so a client can appear twice.")),
      card("Now", data.more ? "the 30 longest queues" : null, data.locks.length ? drawing(data.locks) : empty("Nobody waits for anybody.")),
      card("Cycles that were refused", "a wait that would close a cycle is refused at once", cycles(data.cycles)),
      data.locks.length ? card("The same in words", null, words(data.locks)) : null,
    ];
  },
};

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

// How many arrows lead from a node to the far right; a cycle, which cannot last, is cut.
function depths(nodes) {
  const depth = new Map();
  const visit = (node, path) => {
    if (depth.has(node.key)) return depth.get(node.key);
    if (path.has(node.key) || path.size > DEPTH_MAX) return 0;
    path.add(node.key);
    const found = Math.max(-1, ...[...node.to.keys()].map((key) => visit(nodes.get(key), path))) + 1;
    path.delete(node.key);
    depth.set(node.key, found);
    return found;
  };
  for (const node of nodes.values()) visit(node, new Set());
  return depth;
}

// What is connected stands together, from top to bottom.
function components(nodes) {
  const neighbours = new Map([...nodes.keys()].map((key) => [key, new Set()]));
  for (const node of nodes.values()) {
    for (const key of node.to.keys()) {
      neighbours.get(node.key).add(key);
      neighbours.get(key).add(node.key);
    }
  }
  const seen = new Set();
  const found = [];
  for (const start of nodes.keys()) {
    if (seen.has(start)) continue;
    const part = [];
    const open = [start];
    seen.add(start);
    while (open.length) {
      const key = open.shift();
      part.push(nodes.get(key));
      for (const next of neighbours.get(key)) {
        if (!seen.has(next)) { seen.add(next); open.push(next); }
      }
    }
    found.push(part);
  }
  return found;
}

function layout(nodes) {
  const depth = depths(nodes);
  const deepest = Math.max(...depth.values());
  let top = 4;
  for (const part of components(nodes)) {
    const layers = new Map();
    for (const node of part) {
      const at = depth.get(node.key);
      if (!layers.has(at)) layers.set(at, []);
      layers.get(at).push(node);
    }
    const tallest = Math.max(...[...layers.values()].map((layer) => layer.length));
    for (const at of [...layers.keys()].sort((a, b) => a - b)) {
      const layer = layers.get(at);
      // Beside what it leads to, so that arrows cross little.
      const middle = (node) => {
        const ys = [...node.to.keys()].map((key) => nodes.get(key).y).filter((y) => y !== undefined);
        return ys.length ? ys.reduce((sum, y) => sum + y, 0) / ys.length : 0;
      };
      layer.sort((one, other) => middle(one) - middle(other));
      const offset = ((tallest - layer.length) * STEP.y) / 2;
      layer.forEach((node, index) => {
        node.x = 2 + (deepest - at) * STEP.x;
        node.y = top + offset + index * STEP.y;
      });
    }
    top += tallest * STEP.y + 14;
  }
  return { width: deepest * STEP.x + BOX.width + 4, height: top };
}

function drawing(locks) {
  const nodes = network(locks);
  const size = layout(nodes);
  const edges = [...nodes.values()].flatMap((node) => [...node.to].map(([key, kind]) => {
    const target = nodes.get(key);
    const [x1, y1, x2, y2] = [node.x + BOX.width, node.y + BOX.height / 2, target.x - 5, target.y + BOX.height / 2];
    const bend = Math.max(16, (x2 - x1) / 2);
    return s("path", { class: kind, d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
  }));
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
      edges, boxes));
}

function cycles(list) {
  if (list.length === 0) return empty("None lately.");
  return table([{ label: "When", class: "fit mono" }, { label: "Refused", class: "name" }, { label: "The cycle" }], list.map((event) => ({
    key: event.position,
    cells: [clock(event.unix_ms), event.names.map((name, at) => [at ? ", " : "", h("a", { href: address("lock", { name }) }, shown(name))]), shown(event.detail.replace(/^deadlock: /, ""))],
  })), "Cycles that were refused");
}

function words(locks) {
  return table([{ label: "Lock", class: "name" }, { label: "Held by" }, { label: "Waiting, first in line first" }], locks.map((lock) => ({
    key: lock.name,
    cells: [h("a", { href: address("lock", { name: lock.name }) }, shown(lock.name)),
      lock.holders.length ? lock.holders.map((one, at) => [at ? ", " : "", who(one.owner, one.session)]) : "nobody",
      [lock.waiters.map((one, at) => [at ? ", " : "", who(one.owner, one.session)]), lock.waiter_count > lock.waiters.length ? ` and ${number(lock.waiter_count - lock.waiters.length)} more` : null]],
  })), "Who waits for whom");
}

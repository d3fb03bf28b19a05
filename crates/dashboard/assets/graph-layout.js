// Where the boxes of the wait-for graph stand and how its arrows run: in columns, each arrow leading one column to the
// right. One that leads further gets a gap between the boxes of every column that it crosses, so no arrow runs
// behind a box; one that leads back, as in a cycle, runs below.

export const BOX = { width: 142, height: 36 };
const STEP = { x: 174, y: 46 };
const GAP = 18;
const LANE = 10;
const DEPTH_MAX = 12;

// nodes: by key, { key, to: Map of key -> kind }. Gives each its x and y; returns { width, height, arrows: [{ kind, d }] }.
export function layout(nodes) {
  const depth = depths(nodes);
  const { points, arrows } = hops(nodes, depth);
  const deepest = Math.max(...depth.values());
  // Arrows that lead back turn round beside the outermost boxes.
  const margin = arrows.some((arrow) => arrow.back) ? 24 : 2;
  let top = 4;
  for (const part of components(points)) {
    const columns = new Map();
    for (const point of part) columns.set(point.depth, [...(columns.get(point.depth) || []), point]);
    const heightOf = (column) => column.reduce((sum, point) => sum + slot(point), 0);
    const tallest = Math.max(...[...columns.values()].map(heightOf));
    for (const at of [...columns.keys()].sort((a, b) => a - b)) {
      const column = columns.get(at);
      column.sort((one, other) => aim(one, points) - aim(other, points));
      let y = top + (tallest - heightOf(column)) / 2;
      for (const point of column) {
        point.x = margin + (deepest - at) * STEP.x;
        point.middle = y + (point.node ? BOX.height : GAP - (STEP.y - BOX.height)) / 2;
        if (point.node) Object.assign(point.node, { x: point.x, y });
        y += slot(point);
      }
    }
    const back = arrows.filter((arrow) => arrow.back && part.includes(points.get(arrow.keys[0])));
    back.forEach((arrow, lane) => { arrow.lane = top + tallest + (lane + 0.5) * LANE; });
    top += tallest + back.length * LANE + 14;
  }
  return { width: deepest * STEP.x + BOX.width + 2 * margin, height: top,
    arrows: arrows.map((arrow) => ({ kind: arrow.kind, d: arrow.back ? around(arrow, points) : through(arrow, points) })) };
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

// The points that take room, boxes and crossings, each with its neighbours to the right; and each arrow as the points
// that it passes.
function hops(nodes, depth) {
  const points = new Map([...nodes.values()].map((node) => [node.key, { key: node.key, node, depth: depth.get(node.key), next: [], linked: [] }]));
  const arrows = [];
  for (const node of nodes.values()) {
    for (const [target, kind] of node.to) {
      const [from, to] = [points.get(node.key), points.get(target)];
      const back = from.depth <= to.depth;
      const keys = [from.key];
      for (let at = from.depth - 1; at > to.depth; at -= 1) {
        const key = `x ${at} ${from.key} ${to.key}`;
        points.set(key, { key, node: null, depth: at, next: [], linked: [] });
        keys.push(key);
      }
      keys.push(to.key);
      keys.slice(1).forEach((key, at) => {
        if (!back) points.get(keys[at]).next.push(key);
        points.get(keys[at]).linked.push(key);
        points.get(key).linked.push(keys[at]);
      });
      arrows.push({ kind, keys, back, lane: 0 });
    }
  }
  return { points, arrows };
}

// What is connected stands together, from top to bottom.
function components(points) {
  const seen = new Set();
  const found = [];
  for (const start of points.keys()) {
    if (seen.has(start)) continue;
    const part = [];
    const open = [start];
    seen.add(start);
    while (open.length) {
      const point = points.get(open.shift());
      part.push(point);
      for (const next of point.linked) {
        if (!seen.has(next)) { seen.add(next); open.push(next); }
      }
    }
    found.push(part);
  }
  return found;
}

function slot(point) {
  return point.node ? STEP.y : GAP;
}

// Beside what it leads to, so that arrows cross little.
function aim(point, points) {
  const middles = point.next.map((key) => points.get(key).middle);
  return middles.length ? middles.reduce((sum, middle) => sum + middle, 0) / middles.length : 0;
}

function through(arrow, points) {
  const way = arrow.keys.map((key) => points.get(key));
  let d = `M${way[0].x + BOX.width} ${way[0].middle}`;
  way.slice(1).forEach((point, at) => {
    const [x1, y1] = [way[at].x + BOX.width, way[at].middle];
    const [x2, y2] = [point.node ? point.x - 5 : point.x, point.middle];
    const bend = (x2 - x1) / 2;
    d += `C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    if (!point.node) d += `H${x2 + BOX.width}`;
  });
  return d;
}

function around(arrow, points) {
  const [from, to] = [points.get(arrow.keys[0]), points.get(arrow.keys[1])];
  const [x1, x2] = [from.x + BOX.width, to.x];
  return `M${x1} ${from.middle}C${x1 + 24} ${from.middle} ${x1 + 24} ${arrow.lane} ${x1} ${arrow.lane}H${x2}C${x2 - 24} ${arrow.lane} ${x2 - 28} ${to.middle} ${x2 - 5} ${to.middle}`;
}

// Small plots over the last minutes.

import { h, s } from "./dom.js";
import { number, clock } from "./text.js";

const WIDTH = 300;
const HEIGHT = 90;
// Of a cluster that has just begun: what there is fills the plot.
const SPAN_MIN_MS = 5000;
const SPAN_MAX_MS = 300000;

// series: [{ label, of: sample -> number or null, show }]
export function plot(title, samples, series, show = number) {
  const end = samples.length ? samples[samples.length - 1].unix_ms : 0;
  const kept = samples.filter((sample) => end - sample.unix_ms <= SPAN_MAX_MS);
  const span = Math.max(SPAN_MIN_MS, kept.length ? end - kept[0].unix_ms : 0);
  const values = kept.flatMap((sample) => series.map((one) => one.of(sample)).filter((value) => value !== null && value !== undefined));
  const top = ceiling(Math.max(0, ...values));
  const x = (sample) => WIDTH - ((end - sample.unix_ms) / span) * WIDTH;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const last = kept[kept.length - 1];
  const legend = series.map((one, at) => h("span", { class: `tone-${at + 1}` }, one.label, " ", h("b", {}, last ? show(one.of(last)) : "–")));
  const words = `${title}: ${series.map((one) => `${one.label} ${last ? show(one.of(last)) : "unknown"}`).join(", ")}`;
  return h("section", { class: "card", "aria-label": title },
    h("header", {}, h("h2", {}, title), h("span", { class: "legend" }, legend)),
    h("div", { class: "plot" },
      s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
        s("line", { class: "grid", x1: 0, x2: WIDTH, y1: 0.5, y2: 0.5 }),
        s("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
        s("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
        marks(kept).map((sample) => s("line", { class: "mark", x1: x(sample), x2: x(sample), y1: 0, y2: HEIGHT },
          s("title", {}, `${clock(sample.unix_ms)}: node ${sample.leader} leads`))),
        series.map((one, at) => curves(kept, one, x, y, at + 1, at === 0))),
      h("div", { class: "axis" }, h("span", {}, `${span < 90000 ? `${Math.round(span / 1000)} s` : `${Math.round(span / 60000)} min`} ago`), h("span", {}, `scale 0 to ${show(top)}`), h("span", {}, "now"))));
}

// Where the leader changed.
function marks(samples) {
  const led = samples.filter((sample) => sample.leader !== 0);
  return led.filter((sample, at) => at > 0 && led[at - 1].leader !== sample.leader);
}

// Where nothing is known there is a gap.
function curves(samples, series, x, y, tone, filled) {
  const runs = [];
  let run = [];
  for (const sample of samples) {
    const value = series.of(sample);
    if (value === null || value === undefined) {
      if (run.length) runs.push(run);
      run = [];
    } else {
      run.push(`${x(sample).toFixed(1)} ${y(value).toFixed(1)}`);
    }
  }
  if (run.length) runs.push(run);
  return runs.map((points) => {
    const line = points.length === 1 ? `M${points[0]}h.8` : `M${points.join("L")}`;
    const [from, to] = [points[0].split(" ")[0], points[points.length - 1].split(" ")[0]];
    return [filled ? s("path", { class: `area tone-${tone}`, d: `${line}L${to} ${HEIGHT}L${from} ${HEIGHT}z` }) : null,
      s("path", { class: `curve tone-${tone}`, d: line })];
  });
}

function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value);
}

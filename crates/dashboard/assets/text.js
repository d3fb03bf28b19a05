// Text that others have chosen, made visible: it is shown as it is, except that what could not be seen, or
// would change how the rest is read (control characters, marks of direction, joiners), is written out.

import { h } from "./dom.js";

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|\udb40[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|^ +| +$/g;

function written(part) {
  if (part[0] === " ") return "␠".repeat(part.length);
  return [...part].map((one) => `\\u{${one.codePointAt(0).toString(16)}}`).join("");
}

// Pieces of { text, hidden }.
function pieces(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > at) found.push({ text: text.slice(at, match.index), hidden: false });
    found.push({ text: written(match[0]), hidden: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push({ text: text.slice(at), hidden: false });
  return found;
}

// As an element; its direction is its own.
export function shown(text, attributes) {
  return h("bdi", attributes, pieces(String(text)).map((piece) =>
    piece.hidden ? h("span", { class: "esc", title: "a character that cannot be seen" }, piece.text) : piece.text));
}

// As plain text, for places that take nothing else; cut to so many characters.
export function plain(text, max) {
  const whole = pieces(String(text)).map((piece) => piece.text).join("");
  const characters = [...whole];
  return max && characters.length > max ? characters.slice(0, max - 1).join("") + "…" : whole;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  return Number(value).toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return duration(value);
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function clock(unixMs) {
  const time = new Date(unixMs);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

export function count(n, one, many) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

// Who it is, in one line.
export function who(owner, session) {
  const known = owner && (owner.application || owner.host);
  const place = known ? [owner.host, owner.pid ? `pid ${owner.pid}` : ""].filter(Boolean).join(" ") : "";
  if (!known) return [h("span", { class: "mono" }, `session ${session}`)];
  return [owner.application ? shown(owner.application) : null,
    place ? h("span", { class: "sub" }, owner.application ? " · " : "", shown(place)) : null];
}

export function whoText(owner, session, max) {
  if (!owner || !(owner.application || owner.host)) return `session ${session.slice(0, 8)}`;
  return plain([owner.application, owner.host].filter(Boolean).join(" · "), max);
}

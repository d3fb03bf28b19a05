// Elements, and how what is shown becomes what should be shown. Text is only ever put in as text: nothing here
// parses markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "text", "title", "defs", "marker", "circle", "polygon"]);

// h("td", { class: "num" }, "3", node, null): handlers are properties (onclick), so that they can be handed on.
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, SVG_TAGS.has(tag) ? tag : "a"), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown"];

// Makes the children of `parent` be like those of `wanted`, and keeps the elements that are alike: so focus,
// selection and scrolling stay where they are. Elements with the same `data-key` belong together.
export function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.children) {
    if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  }
  let at = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.nodeType === 1 ? next.dataset.key : undefined;
    const known = key === undefined ? undefined : keyed.get(key);
    if (known) {
      if (known !== at) parent.insertBefore(known, at);
      else at = at.nextSibling;
      keyed.delete(key);
      morph(known, next);
    } else if (at && key === undefined && isAlike(at, next)) {
      const current = at;
      at = at.nextSibling;
      morph(current, next);
    } else {
      parent.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function isAlike(one, other) {
  if (one.nodeType !== other.nodeType || one.nodeName !== other.nodeName) return false;
  return one.nodeType !== 1 || (one.dataset.key === undefined && one.id === other.id);
}

function morph(current, next) {
  if (current.nodeType !== 1) {
    if (current.nodeValue !== next.nodeValue) current.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...current.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") current.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (current.getAttribute(name) === value) continue;
    // The content security policy refuses a style that is set as an attribute.
    if (name === "style") current.style.cssText = value;
    else current.setAttribute(name, value);
  }
  for (const handler of HANDLERS) {
    if (current[handler] !== next[handler]) current[handler] = next[handler];
  }
  // A field that has the focus keeps what the user is typing.
  if ("value" in current && current !== document.activeElement && current.value !== next.value) current.value = next.value;
  if ("checked" in current && current.checked !== next.checked) current.checked = next.checked;
  morphChildren(current, next);
}

// A table whose rows become small cards on a narrow screen. columns: [{ label, class }]; rows: [{ key, link, cells, class }].
export function table(columns, rows, caption) {
  return h("div", { class: "table" },
    h("table", { class: "stack" },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: column.class, scope: "col" }, column.label)))),
      h("tbody", {}, rows.map((row) =>
        h("tr", { "data-key": row.key, class: [row.link ? "linked" : "", row.class || ""].join(" ").trim() || null },
          row.cells.map((cell, at) => h("td", { class: columns[at].class, "data-label": columns[at].label }, isEmpty(cell) ? null : h("div", {}, cell))))))));
}

function isEmpty(cell) {
  return cell === null || cell === undefined || cell === false || cell === "" || (Array.isArray(cell) && cell.every(isEmpty));
}

export function card(title, note, ...body) {
  return h("section", { class: "card", "aria-label": title },
    h("header", {}, h("h2", {}, title), note ? h("span", { class: "note" }, note) : null), body);
}

// A number as a length, 0 to 1.
export function bar(share) {
  const element = h("span", { class: "bar", "aria-hidden": true });
  element.style.width = `${share > 0 ? Math.max(4, Math.round(share * 60)) : 0}px`;
  return element;
}

export function empty(...words) {
  return h("p", { class: "empty" }, words);
}

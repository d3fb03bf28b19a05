// Addresses within the page: `#/locks?sort=queue` is the view `locks` with its parameters.

export function address(id, parameters) {
  const given = Object.entries(parameters || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `#/${id}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

// The view and the parameters that stand in an address.
export function parse(hash) {
  const at = hash.indexOf("?");
  const path = (at < 0 ? hash : hash.slice(0, at)).replace(/^#\/?/, "");
  const query = at < 0 ? "" : hash.slice(at + 1);
  return { path, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

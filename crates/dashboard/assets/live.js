// The stream of seconds: what the header and the plots show, and the beat by which all else is asked for
// again. When it breaks it is opened again, as often as needed; the page is never loaded again for that.

const SAMPLES_MAX = 300;
const SILENCE_MAX_MS = 5000;
const AGAIN_MS = [500, 1000, 2000, 4000];

export const live = {
  // "connecting", "live" or "lost"
  state: "connecting",
  now: null,
  samples: [],
  // The node that serves this page.
  node: 0,
  actions: false,
  // Who the node takes this page for, if it demands to know that.
  principal: null,
};

const listeners = new Set();
let source = null;
let failures = 0;
let watchdog = 0;
let again = 0;

export function onBeat(listener) {
  listeners.add(listener);
}

function beat() {
  for (const listener of listeners) listener();
}

// A page in the background needs no stream; a browser opens only a few to one server, for all of its tabs.
document.addEventListener("visibilitychange", () => {
  clearTimeout(watchdog);
  clearTimeout(again);
  source.close();
  if (!document.hidden) connect();
});

export function connect() {
  source = new EventSource("/api/live");
  source.addEventListener("hello", (message) => {
    const told = JSON.parse(message.data);
    live.node = told.node;
    live.actions = told.actions;
    live.principal = told.principal;
    live.samples = told.samples;
    heard(told.now);
  });
  source.addEventListener("second", (message) => {
    const told = JSON.parse(message.data);
    if (told.sample) live.samples.push(told.sample);
    live.samples.splice(0, live.samples.length - SAMPLES_MAX);
    heard(told.now);
  });
  source.onerror = lost;
  watch();
}

// For good: without a login there is nothing to hear.
export function disconnect() {
  clearTimeout(watchdog);
  clearTimeout(again);
  listeners.clear();
  source.close();
}

function heard(now) {
  failures = 0;
  live.state = "live";
  if (now) live.now = now;
  watch();
  beat();
}

function watch() {
  clearTimeout(watchdog);
  watchdog = setTimeout(lost, SILENCE_MAX_MS);
}

function lost() {
  clearTimeout(watchdog);
  source.close();
  live.state = "lost";
  beat();
  again = setTimeout(connect, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]);
  failures += 1;
}

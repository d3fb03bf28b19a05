import assert from "node:assert/strict";
import { test } from "node:test";
import { Clock, now } from "#dist/clock.js";

const MS = 1_000_000n;

/** Three clocks that a test sets. */
class Clocks {
  monotonic = 5_000n * MS;
  uptime = 777_000n * MS;
  wall = 1_700_000_000_000n * MS;
  readonly clock = new Clock(
    () => this.monotonic,
    [
      { read: () => (this.uptime / (10n * MS)) * 10n * MS, resolution: 11n * MS },
      { read: () => (this.wall / MS) * MS, resolution: 20n * MS },
    ],
  );

  runs(ms: bigint): void {
    this.monotonic += ms * MS;
    this.uptime += ms * MS;
    this.wall += ms * MS;
  }

  /** The time that the clock counts while this happens. */
  counts(happens: () => void): bigint {
    const before = this.clock.now();
    happens();
    return (this.clock.now() - before) / MS;
  }
}

test("time that passes is counted once, however often the clock is read", () => {
  const clocks = new Clocks();
  const counted = clocks.counts(() => {
    for (let read = 0; read < 10_000; read++) {
      clocks.runs(1n);
      clocks.clock.now();
    }
  });
  assert.equal(counted, 10_000n);
});

test("a sleep of the machine is counted, though the monotonic clock stood still", () => {
  for (const sleepMs of [30n, 1_234n, 3_600_000n]) {
    const clocks = new Clocks();
    const counted = clocks.counts(() => {
      clocks.uptime += sleepMs * MS;
      clocks.wall += sleepMs * MS;
    });
    assert.ok(counted >= sleepMs && counted <= sleepMs + 150n, `${sleepMs} ms became ${counted} ms`);
  }
});

test("a pause that only the wall clock shows is counted", () => {
  const clocks = new Clocks();
  const counted = clocks.counts(() => {
    clocks.wall += 60_000n * MS;
  });
  assert.ok(counted >= 60_000n);
});

test("a wall clock that is set back neither stops the clock nor hides a later sleep", () => {
  const clocks = new Clocks();
  clocks.wall -= 3_600_000n * MS;
  assert.equal(
    clocks.counts(() => clocks.runs(1_000n)),
    1_000n,
  );
  const counted = clocks.counts(() => {
    clocks.wall += 5_000n * MS;
  });
  assert.ok(counted >= 5_000n);
});

test("a wall clock that was set forward and back again does not hide a sleep", () => {
  const clocks = new Clocks();
  clocks.wall += 3_600_000n * MS;
  clocks.clock.now();
  clocks.wall -= 3_600_000n * MS;
  clocks.clock.now();
  const counted = clocks.counts(() => {
    clocks.uptime += 10_000n * MS;
  });
  assert.ok(counted >= 10_000n);
});

test("a pause while the clocks are read is counted once", () => {
  let [time, readings] = [5_000n * MS, 0];
  // The process stands still for 50 ms between two of the clocks.
  const wall = () => {
    readings += 1;
    if (readings === 3) time += 50n * MS;
    return time;
  };
  const clock = new Clock(() => time, [{ read: wall, resolution: 20n * MS }]);
  const before = clock.now();
  assert.equal(clock.now() - before, 50n * MS);
  assert.equal(clock.now() - before, 50n * MS);
});

test("the real clock rises", () => {
  const first = now();
  assert.ok(now() >= first && first > 0n);
});

/**
 * The clock that leases are counted on, in nanoseconds. It runs on while the process or the machine stands still.
 *
 * Node has no clock that counts a machine's sleep. So the monotonic clock is compared with others: `/proc/uptime` where
 * it exists, and the wall clock, which a hypervisor sets right after it paused the machine. Time that another clock
 * counted and the monotonic one did not is added. A wall clock that is set forward ends leases early, which is safe.
 * One that is set back changes nothing.
 */

import { openSync, readSync } from "node:fs";

const MS = 1_000_000n;

/** A reading of all clocks that took longer is made again, some times. */
const SHARP = MS;
const READINGS_MAX = 4;

/** Another clock, in nanoseconds. */
export interface SecondOpinion {
  read(): bigint;
  /** Its readings are cut by less than this. */
  resolution: bigint;
}

interface Compared extends SecondOpinion {
  /** What it and the monotonic clock showed when they were last taken to agree. */
  seen: bigint;
  monotonicSeen: bigint;
}

export class Clock {
  private readonly others: Compared[];
  /** What the monotonic clock did not count. Above 0, so that no time is 0. */
  private missed = 1_000n * MS;

  constructor(
    private readonly monotonic: () => bigint,
    others: SecondOpinion[],
  ) {
    const monotonicSeen = monotonic();
    this.others = others.map((other) => ({
      read: other.read,
      resolution: other.resolution,
      seen: other.read(),
      monotonicSeen,
    }));
  }

  now(): bigint {
    let reading = this.read();
    // A pause between two clocks looks as if one had missed it.
    for (let more = READINGS_MAX - 1; more > 0 && reading.took >= SHARP; more--) reading = this.read();
    const { monotonic, shown } = reading;
    let missed = 0n;
    for (const [index, other] of this.others.entries()) {
      const time = shown[index] ?? 0n;
      const ahead = time - other.seen - (monotonic - other.monotonicSeen);
      if (ahead > -other.resolution && ahead < other.resolution) continue;
      // Twice the resolution: both readings are cut. Too late a time is safe.
      const counted = ahead + 2n * other.resolution;
      if (ahead > 0n && counted > missed) missed = counted;
      other.seen = time;
      other.monotonicSeen = monotonic;
    }
    this.missed += missed;
    return monotonic + reading.took + this.missed;
  }

  private read(): { monotonic: bigint; shown: bigint[]; took: bigint } {
    const monotonic = this.monotonic();
    const shown = this.others.map((other) => other.read());
    return { monotonic, shown, took: this.monotonic() - monotonic };
  }
}

function uptime(): SecondOpinion[] {
  try {
    const file = openSync("/proc/uptime", "r");
    const buffer = Buffer.alloc(64);
    const read = () => {
      const length = readSync(file, buffer, 0, buffer.length, 0);
      // "1234.56 ...": hundredths of a second.
      const [seconds = "0", hundredths = "0"] = buffer.toString("latin1", 0, length).split(" ", 1)[0]?.split(".") ?? [];
      return BigInt(seconds) * 1_000n * MS + BigInt(hundredths) * 10n * MS;
    };
    return read() > 0n ? [{ read, resolution: 11n * MS }] : [];
  } catch {
    return [];
  }
}

const wall: SecondOpinion = { read: () => BigInt(Date.now()) * MS, resolution: 20n * MS };

const clock = new Clock(process.hrtime.bigint, [...uptime(), wall]);

/** The time that leases are counted on. */
export function now(): bigint {
  return clock.now();
}

package holdfast.client;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.function.LongSupplier;

/**
 * The clock that leases are counted on, in nanoseconds: {@code nanoTime}, and the time that it
 * missed. {@code nanoTime} may stand still while the machine sleeps. {@code /proc/uptime} does not.
 * The wall clock also tells of the time in which a virtual machine was paused.
 *
 * <p>It never runs slower than {@code nanoTime}. A wall clock that is set forward makes it jump,
 * and then locks are lost early, which is safe. One that is set back changes nothing.
 */
final class Clock {
  /** What a clock says that this system does not have. */
  static final long NOT_THERE = Long.MIN_VALUE;

  /** A reading of all clocks that took longer does not show that the wall clock was set back. */
  private static final long SHARP = 1_000_000;

  /** {@code /proc/uptime} is cut to hundredths of a second. */
  private static final long UPTIME_STEP = 10_000_000;

  private static final long SECOND = 1_000_000_000;
  private static final Clock SYSTEM = new Clock(System::nanoTime, new Uptime(), Clock::wall);

  private final LongSupplier monotonic;
  private final LongSupplier uptime;
  private final LongSupplier wall;
  private final long monotonicStart;

  /** By how much the uptime was certainly ahead of the monotonic clock when this one started. */
  private final long uptimeStart;

  /** How much of the time the monotonic clock has missed, as the others show. */
  private long missedByUptime;

  private long missedByWall;

  /** By how much the wall clock is ahead of the monotonic one. */
  private long wallAhead;

  Clock(LongSupplier monotonic, LongSupplier uptime, LongSupplier wall) {
    this.monotonic = monotonic;
    this.uptime = uptime;
    this.wall = wall;
    monotonicStart = monotonic.getAsLong();
    long uptimeNow = uptime.getAsLong();
    uptimeStart = uptimeNow == NOT_THERE ? NOT_THERE : uptimeNow + UPTIME_STEP - monotonicStart;
    wallAhead = wall.getAsLong() - monotonicStart;
  }

  static long now() {
    return SYSTEM.read();
  }

  /** The monotonic clock is read last: a pause in between makes the others look late, not early. */
  synchronized long read() {
    long before = monotonic.getAsLong();
    long wallNow = wall.getAsLong();
    long uptimeNow = uptime.getAsLong();
    long now = monotonic.getAsLong();
    if (uptimeNow != NOT_THERE && uptimeStart != NOT_THERE) {
      missedByUptime = Math.max(missedByUptime, uptimeNow - now - uptimeStart);
    }
    long ahead = wallNow - now;
    if (ahead > wallAhead) {
      missedByWall += ahead - wallAhead;
      wallAhead = ahead;
    } else if (ahead < wallAhead - 2 * SHARP && now - before < SHARP) {
      wallAhead = ahead;
    }
    return SECOND + now - monotonicStart + Math.max(missedByUptime, missedByWall);
  }

  private static long wall() {
    Instant now = Instant.now();
    return now.getEpochSecond() * SECOND + now.getNano();
  }

  /** The time since the machine started, its sleep included, on Linux. */
  private static final class Uptime implements LongSupplier {
    private final byte[] text = new byte[64];
    private final RandomAccessFile file = open();

    /** Not a channel: an interrupt would close that. */
    private static RandomAccessFile open() {
      try {
        return new RandomAccessFile("/proc/uptime", "r");
      } catch (IOException notLinux) {
        return null;
      }
    }

    /** The file has seconds with two decimals, and something behind them. */
    @Override
    public long getAsLong() {
      if (file == null) {
        return NOT_THERE;
      }
      try {
        file.seek(0);
        int length = file.read(text);
        String line = new String(text, 0, Math.max(0, length), StandardCharsets.US_ASCII);
        int dot = line.indexOf('.');
        String hundredths = line.substring(0, dot) + line.substring(dot + 1, dot + 3);
        return Long.parseLong(hundredths) * UPTIME_STEP;
      } catch (IOException | IndexOutOfBoundsException | NumberFormatException unreadable) {
        return NOT_THERE;
      }
    }
  }
}

package holdfast.client.core;

import java.util.random.RandomGenerator;

/** Doubles, with jitter, so that the clients of a failed leader do not all come back at once. */
public final class Backoff {
  private static final long FIRST = 20 * Leases.MS;
  private static final long LONGEST = 500 * Leases.MS;

  private final RandomGenerator jitter;
  private long ceiling = FIRST;

  public Backoff(RandomGenerator jitter) {
    this.jitter = jitter;
  }

  public void reset() {
    ceiling = FIRST;
  }

  public long nextDelay() {
    long half = ceiling / 2;
    ceiling = Math.min(ceiling * 2, LONGEST);
    return half + (long) (half * jitter.nextDouble());
  }

  /** The longest pause after what a node has told to wait. */
  static long longestAfter(long told) {
    return told + LONGEST;
  }
}

package holdfast.client;

import java.util.concurrent.atomic.AtomicLong;

/** Each thread is an actor of its own: two threads of one process exclude each other. */
final class Actors {
  private static final AtomicLong LAST = new AtomicLong();
  private static final ThreadLocal<Long> OF_THREAD = ThreadLocal.withInitial(LAST::incrementAndGet);

  private Actors() {}

  static long ofThread() {
    return OF_THREAD.get();
  }

  /** For a request that no thread waits for. */
  static long next() {
    return LAST.incrementAndGet();
  }
}

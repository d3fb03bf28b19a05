package holdfast.client;

import holdfast.client.core.Outcome;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/** A request of a program, until it has its outcome. */
final class Call {
  private final CountDownLatch done = new CountDownLatch(1);
  private final Consumer<Outcome> onDone;
  private final LongConsumer onQueued;
  private volatile Outcome outcome;

  /** By which the session knows it. */
  long number;

  Call() {
    this(null, null);
  }

  /** Both may be null, and are called in the thread for callbacks. */
  Call(Consumer<Outcome> onDone, LongConsumer onQueued) {
    this.onDone = onDone;
    this.onQueued = onQueued;
  }

  Consumer<Outcome> onDone() {
    return onDone;
  }

  LongConsumer onQueued() {
    return onQueued;
  }

  void resolve(Outcome resolved) {
    outcome = resolved;
    done.countDown();
  }

  Outcome await() throws InterruptedException {
    done.await();
    return outcome;
  }

  Outcome awaitUninterruptibly() {
    boolean wasInterrupted = false;
    try {
      while (true) {
        try {
          return await();
        } catch (InterruptedException interrupted) {
          wasInterrupted = true;
        }
      }
    } finally {
      if (wasInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}

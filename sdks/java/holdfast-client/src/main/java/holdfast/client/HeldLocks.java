package holdfast.client;

import holdfast.client.core.Hold;
import holdfast.client.core.Request;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.v1.ReleaseOutcome;
import java.lang.ref.Cleaner;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * Locks that were granted together. If one of them is lost, none gives a token any more.
 *
 * <p>To close it releases the locks, and throws {@code LostException} if they were lost meanwhile.
 * In a {@code try} with resources, that never hides the error of the body.
 */
public abstract sealed class HeldLocks implements AutoCloseable permits Guard, GuardAll {
  private static final Cleaner CLEANER = Cleaner.create();

  private final Engine engine;
  private final List<Hold> holds;
  private final AtomicBoolean isReleased;
  private final Cleaner.Cleanable cleanable;
  private volatile LossInterrupt interrupt;

  HeldLocks(Engine engine, List<Hold> holds) {
    this.engine = engine;
    this.holds = holds;
    this.isReleased = new AtomicBoolean();
    this.cleanable = CLEANER.register(this, new Dropped(engine, holds, isReleased));
  }

  final Engine engine() {
    return engine;
  }

  final List<Hold> holds() {
    return holds;
  }

  /** Throws {@code LostException} unless the lock is certainly held. It asks no node. */
  public final void check() {
    if (isReleased.get()) {
      throw new LostException(LossReason.RELEASED);
    }
    long now = Clock.now();
    holds.forEach(hold -> hold.check(now));
  }

  public final boolean isHeld() {
    try {
      check();
      return true;
    } catch (LostException lost) {
      return false;
    }
  }

  /** For how long the lock is certainly held, as far as is known now. */
  public final Duration validFor() {
    if (!isHeld()) {
      return Duration.ZERO;
    }
    long until = holds.stream().mapToLong(Hold::validUntil).min().orElse(0);
    return Duration.ofNanos(Math.max(0, until - Clock.now()));
  }

  /** Whether a third of the time is left, or less: heartbeats stay without an answer. */
  public final boolean isAtRisk() {
    long from = holds.stream().mapToLong(Hold::atRiskFrom).min().orElse(0);
    return !isHeld() || from <= Clock.now();
  }

  /** Calls back with the reason when the lock is lost, in a thread of the library. */
  public final void onLost(Consumer<LossReason> callback) {
    engine.watch(holds.get(0), callback);
    holds.subList(1, holds.size()).forEach(engine::watch);
  }

  /** Waits until the lock is lost, and returns the reason; empty if the time is over first. */
  public final Optional<LossReason> awaitLost(Duration timeout) throws InterruptedException {
    try {
      check();
    } catch (LostException lost) {
      return Optional.of(lost.reason());
    }
    CountDownLatch isLost = new CountDownLatch(1);
    AtomicReference<LossReason> told = new AtomicReference<>();
    onLost(
        reason -> {
          told.set(reason);
          isLost.countDown();
        });
    isLost.await(timeout.toNanos(), TimeUnit.NANOSECONDS);
    return Optional.ofNullable(told.get());
  }

  /** Releases the locks. A thread that is interrupted waits for the answer all the same. */
  final List<Released> releaseAll() {
    if (!isReleased.compareAndSet(false, true)) {
      return holds.stream().map(hold -> Released.ALREADY_RELEASED).toList();
    }
    cleanable.clean();
    if (interrupt != null) {
      interrupt.stop();
    }
    List<Request> requests = holds.stream().map(Request::releaseOf).toList();
    List<Call> calls = new ArrayList<>();
    requests.forEach(request -> calls.add(engine.start(request, Duration.ZERO, new Call())));
    List<Released> released = new ArrayList<>();
    for (Call call : calls) {
      released.add(Released.of((ReleaseOutcome) call.awaitUninterruptibly().get()));
    }
    return released;
  }

  /** Releases the locks, and throws {@code LostException} if they were lost before. */
  @Override
  public void close() {
    if (isReleased.get()) {
      return;
    }
    LostException lost = null;
    try {
      check();
    } catch (LostException error) {
      lost = error;
    }
    try {
      releaseAll();
    } catch (RuntimeException error) {
      if (lost == null) {
        throw error;
      }
      lost.addSuppressed(error);
    }
    if (lost != null) {
      throw lost;
    }
  }

  final void interruptOnLoss(Thread thread) {
    interrupt = new LossInterrupt(thread);
    LossInterrupt told = interrupt;
    holds.get(0).loss().whenReported(reason -> told.fire());
    holds.forEach(engine::watch);
  }

  /** Interrupts a thread, unless the lock was released before. */
  private static final class LossInterrupt {
    private final Thread thread;
    private boolean hasFired;
    private boolean isOver;

    LossInterrupt(Thread thread) {
      this.thread = thread;
    }

    synchronized void fire() {
      if (!isOver) {
        hasFired = true;
        thread.interrupt();
      }
    }

    /** What was not noticed is taken back: the code behind the lock is not meant. */
    synchronized void stop() {
      isOver = true;
      if (hasFired && Thread.currentThread() == thread) {
        Thread.interrupted();
      }
    }
  }

  /** What becomes of locks whose guard is garbage. It must not refer to the guard. */
  private record Dropped(Engine engine, List<Hold> holds, AtomicBoolean isReleased)
      implements Runnable {
    @Override
    public void run() {
      if (!isReleased.compareAndSet(false, true)) {
        return;
      }
      if (holds.get(0).loss().reason() == null) {
        String names = String.join(", ", holds.stream().map(Hold::name).toList());
        System.getLogger("holdfast")
            .log(System.Logger.Level.WARNING, "the lock {0} was never released", names);
      }
      engine.drop(holds);
    }
  }
}

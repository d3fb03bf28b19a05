package holdfast.client;

import holdfast.client.core.Breaker;
import holdfast.client.core.Hold;
import holdfast.client.core.Outcome;
import holdfast.client.core.Request;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.LostException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiFunction;
import java.util.function.Supplier;

/**
 * One session with the cluster, for all threads of a program. {@link #connect} opens the session at
 * once; a client from {@link #builder} opens it with the first call that needs it. Closing the
 * client ends the session, which frees all its locks at once.
 *
 * <p>In a cluster with several groups, the client has a session in each group whose locks it uses.
 */
public final class Client implements AutoCloseable {
  private final Sessions sessions;
  private final Supplier<String> traceparents;
  private final ThreadLocal<ThreadGuards> heldByThread = ThreadLocal.withInitial(ThreadGuards::new);

  Client(Sessions sessions, Supplier<String> traceparents) {
    this.sessions = sessions;
    this.traceparents = traceparents;
  }

  /** A client with default settings. Endpoints are {@code host:port}, separated by commas. */
  public static Client connect(String endpoints) {
    return builder(endpoints).build().open();
  }

  /** A client of the nodes at these endpoints, {@code host:port}, separated by commas. */
  public static ClientBuilder builder(String endpoints) {
    return new ClientBuilder(endpoints);
  }

  /** Opens the session now. Without it, the first request does. */
  public Client open() {
    sessions.root().open().get();
    return this;
  }

  /** A request for a lock; its {@code acquire()} sends it. */
  public LockRequest lock(String name) {
    return new LockRequest(this, name);
  }

  /** Several locks, all at one moment or none: a part of them is never held. */
  public LockAllRequest lockAll(String... names) {
    return lockAll(Arrays.asList(names));
  }

  /** As {@link #lockAll(String...)}. */
  public LockAllRequest lockAll(List<String> names) {
    return new LockAllRequest(this, names);
  }

  /** A lock of the cluster as {@code java.util.concurrent.locks.Lock}. */
  public HoldfastLock asLock(String name) {
    return new HoldfastLock(this, name, null);
  }

  /** As {@link #asLock(String)}, with a TTL of its own that the library renews. */
  public HoldfastLock asLock(String name, Duration ttl) {
    return new HoldfastLock(this, name, ttl);
  }

  public Election election(String name) {
    return new Election(this, name);
  }

  /**
   * Watches the locks whose names begin with the prefix: first a snapshot of their present state,
   * then each event.
   */
  public Watch watch(String prefix) {
    return new Watch(sessions.root(), prefix, true);
  }

  /** As {@link #watch}, without a snapshot: only what happens from now on. */
  public Watch watchFromNow(String prefix) {
    return new Watch(sessions.root(), prefix, false);
  }

  /** Who holds a lock, and who waits for it. */
  public LockStatus status(String name) {
    try {
      return LockStatus.of(sessions.status(Checks.name(name)));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new CancelledException();
    }
  }

  /**
   * False once no node has served the session for 3 s. Until a node does, every request except a
   * release fails at once. With several groups: false if no node serves one of the client's
   * sessions. Then only requests for locks of that session's group fail at once.
   */
  public boolean isServed() {
    return sessions.circuit() == Breaker.State.CLOSED;
  }

  /**
   * Ends the session. Throws if no node has confirmed that; the cluster then ends the session after
   * its TTL.
   */
  @Override
  public void close() {
    sessions.close();
  }

  /** The engine of the root group; for calls that need no session. */
  Engine root() {
    return sessions.root();
  }

  ThreadGuards heldByThread() {
    return heldByThread.get();
  }

  String traceparent(String given) {
    String present = given == null && traceparents != null ? traceparents.get() : given;
    return present == null ? "" : present;
  }

  <G extends HeldLocks> G acquire(
      Terms<?> terms, Request request, BiFunction<Engine, List<Hold>, G> guard) {
    try {
      return acquireInterruptibly(terms, request, guard);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new CancelledException();
    }
  }

  <G extends HeldLocks> G acquireInterruptibly(
      Terms<?> terms, Request request, BiFunction<Engine, List<Hold>, G> guard)
      throws InterruptedException {
    Acquisition acquisition = sessions.acquire(request, terms.wait, terms.onQueued);
    Outcome outcome = acquisition.await();
    G held = checked(guard.apply(acquisition.engine(), acquisition.holds(outcome)));
    if (terms.interruptsOnLoss) {
      held.interruptOnLoss(Thread.currentThread());
    }
    return held;
  }

  <G extends HeldLocks> CompletableFuture<G> acquireAsync(
      Terms<?> terms, Request request, BiFunction<Engine, List<Hold>, G> guard) {
    CompletableFuture<G> future = new CompletableFuture<>();
    Acquisition acquisition = sessions.acquire(request, terms.wait, terms.onQueued);
    acquisition.whenDone(
        outcome -> {
          try {
            List<Hold> holds = acquisition.holds(outcome);
            G held = checked(guard.apply(acquisition.engine(), holds));
            if (!future.complete(held)) {
              held.releaseAll();
            }
          } catch (HoldfastException error) {
            future.completeExceptionally(error);
          }
        });
    future.whenComplete(
        (held, error) -> {
          if (future.isCancelled()) {
            acquisition.abandon();
          }
        });
    return future;
  }

  /** A grant may have been so long on its way that it is over by now. */
  private static <G extends HeldLocks> G checked(G guard) {
    try {
      guard.check();
      return guard;
    } catch (LostException lost) {
      guard.releaseAll();
      throw lost;
    }
  }
}

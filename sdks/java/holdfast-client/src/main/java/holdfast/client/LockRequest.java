package holdfast.client;

import holdfast.client.core.Request;
import holdfast.client.errors.BusyException;
import holdfast.client.errors.TimedOutException;
import holdfast.v1.AcquireRequest;
import holdfast.v1.Operation;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A lock that is about to be taken. It can be used again: each {@link #acquire} is another hold.
 */
public final class LockRequest extends Terms<LockRequest> {
  private final Client client;
  private final String name;
  private Mode mode = Mode.EXCLUSIVE;
  private int permits;
  private boolean isReentrant;

  LockRequest(Client client, String name) {
    this.client = client;
    this.name = name;
  }

  @Override
  LockRequest self() {
    return this;
  }

  /** Together with other readers. */
  public LockRequest shared() {
    mode = Mode.SHARED;
    return this;
  }

  /** One of so many. All who use the semaphore state the same number; 0: what an operator set. */
  public LockRequest permits(int count) {
    mode = Mode.PERMIT;
    permits = count;
    return this;
  }

  /** If this thread holds the lock already, count one more. */
  public LockRequest reentrant() {
    isReentrant = true;
    return this;
  }

  /**
   * Takes the lock. It throws {@code BusyException} if the lock is held and the request was not to
   * wait, {@code TimedOutException} if the wait is over, and {@code CancelledException} if the
   * thread is interrupted, whose flag stays set.
   */
  public Guard acquire() {
    return client.acquire(this, request(Actors.ofThread()), Guard::new);
  }

  /** As {@link #acquire}; empty if the lock is held, or was held for the whole wait. */
  public Optional<Guard> tryAcquire() {
    try {
      return Optional.of(acquire());
    } catch (BusyException | TimedOutException held) {
      return Optional.empty();
    }
  }

  /** As {@link #acquire}, with an {@code InterruptedException} if the thread is interrupted. */
  public Guard acquireInterruptibly() throws InterruptedException {
    return client.acquireInterruptibly(this, request(Actors.ofThread()), Guard::new);
  }

  /**
   * Takes the lock without a thread that waits. To cancel the future cancels the request. Each such
   * request is an actor of its own.
   */
  public CompletableFuture<Guard> acquireAsync() {
    return client.acquireAsync(this, request(Actors.next()), Guard::new);
  }

  Request request(long defaultActor) {
    AcquireRequest.Builder acquire =
        AcquireRequest.newBuilder()
            .setName(Checks.name(name))
            .setMode(mode.wire())
            .setWaitMs(wait.toMillis())
            .setMetadata(metadata)
            .setPolicy(policy.wire())
            .setPreemptible(isPreemptible)
            .setReentrant(isReentrant)
            .setTier(tier.wire())
            .setTraceparent(client.traceparent(traceparent))
            .setPermits(permits)
            .setActor(actorOr(defaultActor));
    if (ttl != null) {
      acquire.setTtlMs(ttl.toMillis());
    }
    if (maxHold != null) {
      acquire.setMaxHoldMs(maxHold.toMillis());
    }
    if (lockDelay != null) {
      acquire.setLockDelayMs(lockDelay.toMillis());
    }
    if (since != null) {
      acquire.setSinceMs(since);
    }
    return Request.renewing(Operation.newBuilder().setAcquire(acquire).build(), renewedTtl());
  }
}

package holdfast.client;

import holdfast.client.errors.BusyException;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.TimedOutException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of the cluster as {@code java.util.concurrent.locks.Lock}. A thread may enter it again.
 * All {@code HoldfastLock} objects that one client makes for the same name are the same lock.
 *
 * <p>{@link #unlock} throws {@code LostException} if the lock was lost meanwhile. {@link #guard}
 * gives the token, without which no lock protects a resource from a paused holder.
 */
public final class HoldfastLock implements Lock {
  private final Client client;
  private final String name;
  private final Duration ttl;

  HoldfastLock(Client client, String name, Duration ttl) {
    this.client = client;
    this.name = name;
    this.ttl = ttl;
  }

  private LockRequest request(Duration wait) {
    LockRequest request = client.lock(name).reentrant().waitFor(wait);
    return ttl == null ? request : request.ttl(ttl);
  }

  @Override
  public void lock() {
    boolean wasInterrupted = false;
    try {
      while (true) {
        try {
          lockInterruptibly();
          return;
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

  @Override
  public void lockInterruptibly() throws InterruptedException {
    while (!tryLock(Checks.WAIT_MAX.toSeconds(), TimeUnit.SECONDS)) {
      // A day is over.
      continue;
    }
  }

  @Override
  public boolean tryLock() {
    Optional<Guard> guard = request(Duration.ZERO).tryAcquire();
    guard.ifPresent(it -> client.heldByThread().push(name, it));
    return guard.isPresent();
  }

  @Override
  public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
    if (Thread.interrupted()) {
      throw new InterruptedException();
    }
    Duration wait = Duration.of(Math.max(0, time), unit.toChronoUnit());
    try {
      client.heldByThread().push(name, request(wait).acquireInterruptibly());
      return true;
    } catch (TimedOutException | BusyException held) {
      return false;
    } catch (CancelledException cancelled) {
      throw new InterruptedException();
    }
  }

  @Override
  public void unlock() {
    Guard guard = client.heldByThread().poll(name);
    if (guard == null) {
      throw new IllegalMonitorStateException("this thread does not hold the lock " + name);
    }
    guard.close();
  }

  /** The guard of this thread; empty if it does not hold the lock. */
  public Optional<Guard> guard() {
    return Optional.ofNullable(client.heldByThread().peek(name));
  }

  /** Not supported: a condition would need a queue of its own in the cluster. */
  @Override
  public Condition newCondition() {
    throw new UnsupportedOperationException("a distributed lock has no conditions");
  }
}

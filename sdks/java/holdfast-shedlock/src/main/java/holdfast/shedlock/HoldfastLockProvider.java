package holdfast.shedlock;

import holdfast.client.Client;
import holdfast.client.Guard;
import holdfast.client.errors.LostException;
import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A provider of locks for ShedLock.
 *
 * <p>{@code lockAtMostFor} is the TTL of the hold. The lock is free earlier if the process dies:
 * then its session ends. {@code lockAtLeastFor} holds as long as the process lives: a task that is
 * done earlier leaves the lock to end by itself.
 */
public final class HoldfastLockProvider implements ExtensibleLockProvider {
  private static final String DEFAULT_PREFIX = "shedlock:";

  private final Client client;
  private final String prefix;

  /** Guards of tasks that are done, whose locks are held until {@code lockAtLeastFor} is over. */
  private final Set<Guard> lingering = ConcurrentHashMap.newKeySet();

  public HoldfastLockProvider(Client client) {
    this(client, DEFAULT_PREFIX);
  }

  /** The prefix stands before the name of each lock. */
  public HoldfastLockProvider(Client client, String prefix) {
    this.client = client;
    this.prefix = prefix;
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    return client
        .lock(prefix + configuration.getName())
        .ttl(configuration.getLockAtMostFor())
        .autoRenew(false)
        .tryAcquire()
        .map(guard -> new Held(configuration, guard));
  }

  private final class Held extends AbstractSimpleLock {
    private final Guard guard;

    Held(LockConfiguration configuration, Guard guard) {
      super(configuration);
      this.guard = guard;
    }

    @Override
    protected void doUnlock() {
      Duration rest =
          Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
      if (rest.toMillis() <= 0 || !guard.isHeld()) {
        guard.release();
        return;
      }
      // Known until its time is over: a guard that is garbage is released.
      lingering.add(guard);
      guard.onLost(reason -> lingering.remove(guard));
      guard.renew(rest);
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
      try {
        guard.renew(extended.getLockAtMostFor());
      } catch (LostException lost) {
        return Optional.empty();
      }
      return Optional.of(new Held(extended, guard));
    }
  }
}

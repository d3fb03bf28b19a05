package holdfast.spring;

import holdfast.client.Client;
import holdfast.client.HoldfastLock;
import java.util.Objects;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * A registry of locks for Spring Integration. Its locks live as long as the client's session, which
 * the library keeps alive, and a thread may enter them again.
 *
 * <p>{@code unlock} throws {@code LostException} if the lock was lost meanwhile.
 */
public final class HoldfastLockRegistry implements LockRegistry {
  private static final String DEFAULT_PREFIX = "spring:";

  private final Client client;
  private final String prefix;

  public HoldfastLockRegistry(Client client) {
    this(client, DEFAULT_PREFIX);
  }

  /** The prefix stands before the name of each lock. */
  public HoldfastLockRegistry(Client client, String prefix) {
    this.client = client;
    this.prefix = prefix;
  }

  /** The key's text is the name of the lock. */
  @Override
  public HoldfastLock obtain(Object lockKey) {
    return client.asLock(prefix + Objects.requireNonNull(lockKey, "a lock needs a key"));
  }
}

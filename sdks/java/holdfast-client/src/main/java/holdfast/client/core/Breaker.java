package holdfast.client.core;

/**
 * Opens when no node has served the session for a while: then calls fail at once instead of waiting
 * in vain.
 */
public final class Breaker {
  /** Whether calls are sent, or fail at once. */
  public enum State {
    CLOSED,
    OPEN,
    HALF_OPEN
  }

  /** An election takes less. */
  private static final long OPEN_AFTER = 3_000 * Leases.MS;

  private static final long NEVER = Long.MIN_VALUE;

  private State state = State.CLOSED;
  private long failingSince = NEVER;

  public State state() {
    return state;
  }

  public boolean isClosed() {
    return state == State.CLOSED;
  }

  void handleTry(long now) {
    if (failingSince == NEVER) {
      failingSince = now;
    }
    if (state == State.OPEN) {
      state = State.HALF_OPEN;
    }
  }

  void handleFailure(long now) {
    if (!isClosed() || (failingSince != NEVER && now - failingSince >= OPEN_AFTER)) {
      state = State.OPEN;
    }
  }

  void handleSuccess() {
    failingSince = NEVER;
    state = State.CLOSED;
  }
}

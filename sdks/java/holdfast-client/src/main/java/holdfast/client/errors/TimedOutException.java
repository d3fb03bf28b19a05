package holdfast.client.errors;

/** The lock did not become free within the wait. */
public final class TimedOutException extends HoldfastException {
  public TimedOutException() {
    super("the lock did not become free within the wait");
  }
}

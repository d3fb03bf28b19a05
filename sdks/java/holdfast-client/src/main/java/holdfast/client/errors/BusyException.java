package holdfast.client.errors;

/** Another holder has the lock, and the request was not to wait. */
public final class BusyException extends HoldfastException {
  public BusyException() {
    super("the lock is held; wait for it with waitFor(duration), or try later");
  }
}

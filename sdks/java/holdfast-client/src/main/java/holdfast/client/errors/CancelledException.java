package holdfast.client.errors;

/** The caller was interrupted, or cancelled its request. Nothing is left behind in the cluster. */
public final class CancelledException extends HoldfastException {
  public CancelledException() {
    super("the caller was interrupted while it waited; the request is cancelled");
  }
}

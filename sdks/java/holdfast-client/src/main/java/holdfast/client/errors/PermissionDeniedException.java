package holdfast.client.errors;

/** The cluster knows this client, and its policy does not allow the request. */
public final class PermissionDeniedException extends RejectedException {
  public PermissionDeniedException(String reason, String message, boolean mayHaveHappened) {
    super(reason, message, mayHaveHappened);
  }
}

package holdfast.client.errors;

/**
 * The locks of one request are in several groups of the cluster, and no group can grant them
 * together. Put the same tag into their names: <code>{order}/a</code> and <code>{order}/b</code>
 * are in one group.
 */
public final class SeveralGroupsException extends RejectedException {
  private static final String REASON = "several_groups";

  public SeveralGroupsException(String message, boolean mayHaveHappened) {
    super(REASON, message, mayHaveHappened);
  }

  /** The client has found it out, and has sent nothing. */
  public static SeveralGroupsException of(String name, int group, String other, int otherGroup) {
    String message =
        "'%s' and '%s' are in different groups of the cluster (%s and %s), so no request can take"
            + " both together; put the same tag into their names, such as {order}/%s and"
            + " {order}/%s";
    return new SeveralGroupsException(
        String.format(message, name, other, group, otherGroup, name, other), false);
  }
}

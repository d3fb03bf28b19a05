package holdfast.client.core;

import holdfast.client.errors.SeveralGroupsException;
import holdfast.v1.Failure;
import holdfast.v1.Reason;
import java.util.random.RandomGenerator;

/**
 * The tries of one request that groups refuse because they do not own its lock. A group that
 * refuses with {@code wrong_group} has done nothing, so the request may go to another group, in
 * another session and under another id.
 */
public final class Redirects {
  /** After so many the caller gets the refusal: the groups do not agree on who owns the lock. */
  private static final int COUNT_MAX = 8;

  /** How long a request waits for a newer map before it asks again by the present one. */
  private static final long MAP_PATIENCE = 2_000 * Leases.MS;

  /** The caller gets the refusal. */
  public static final long NEVER = Long.MAX_VALUE;

  private final Backoff backoff;
  private int count;

  public Redirects(RandomGenerator jitter) {
    backoff = new Backoff(jitter);
  }

  /**
   * When to send the request again, to the group that owns the lock by the map of that time: at
   * once (0), or after a pause, or when a newer map is known, but after so long at the latest.
   * {@link #NEVER} if the caller gets the refusal.
   *
   * @param asked the group that refused
   * @param routes the map of now
   */
  public long next(Failure refusal, int asked, Request request, Routes routes) {
    boolean isElsewhere =
        refusal.getReason() == Reason.REASON_WRONG_GROUP && !refusal.getMayHaveHappened();
    if (!isElsewhere || routes.isOneGroup() || count == COUNT_MAX) {
      return NEVER;
    }
    count++;
    try {
      if (routes.groupOf(request) != asked) {
        return 0;
      }
    } catch (SeveralGroupsException several) {
      // The next try tells the caller.
      return 0;
    }
    return routes.isOlderThan(refusal.getMapEpoch()) ? MAP_PATIENCE : backoff.nextDelay();
  }
}

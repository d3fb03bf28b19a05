package holdfast.client.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;

/**
 * How long a client may trust its session and its holds. Times are nanoseconds of the local clock,
 * or milliseconds of logical time.
 *
 * <p>A request that was sent at S and answered with the logical time L is a sample. With it, a
 * deadline D cannot pass before {@code S + (D - L) x 0.98 - 2 ms}. {@code docs/protocol.md} derives
 * that.
 *
 * <p>Guards read leases from any thread, so the methods are synchronized.
 */
public class Leases {
  public static final long MS = 1_000_000;

  /** In hundredths: less 1 % for the cluster's clock and 1 % for ours. */
  private static final long CERTAIN_PERCENT = 98;

  /** Logical times are cut to whole milliseconds, two of them. */
  private static final long SLACK = 2 * MS;

  private record Sample(long sentAt, long logicalMs) {
    /** Whether it shows a later end for every deadline. Differences do not overflow for years. */
    boolean isBetterThan(Sample other) {
      return (sentAt - other.sentAt) * 100 > (logicalMs - other.logicalMs) * CERTAIN_PERCENT * MS;
    }
  }

  private static final class UnansweredRenewal {
    /**
     * A renewal can shorten a hold when it is applied, not when its answer comes. Null: it keeps
     * the TTL.
     */
    final Long end;

    /** Another one was answered since this one was sent. Which was applied last is not known. */
    boolean isOvertaken;

    UnansweredRenewal(Long end) {
      this.end = end;
    }
  }

  private static final class HoldLease {
    final boolean isBestEffort;
    final Map<Long, UnansweredRenewal> unansweredRenewals = new HashMap<>();
    Long ownDeadlineMs;
    long ownSpan;

    HoldLease(boolean isBestEffort, Long ownDeadlineMs) {
      this.isBestEffort = isBestEffort;
      this.ownDeadlineMs = ownDeadlineMs;
    }
  }

  private final long span;
  private final Map<Long, HoldLease> holds = new HashMap<>();
  private Sample best;
  private Sample bestEffort;
  private long lastAnsweredSentAt;

  public Leases(long sentAt, long logicalMs, long ttl, long linger) {
    // The servers may end the session a TTL after its last answered request, or a linger after its
    // connection.
    span = Math.min(ttl, linger);
    best = new Sample(sentAt, logicalMs);
    lastAnsweredSentAt = sentAt;
  }

  /** A span that began after {@code sentAt} is certainly not over before then. */
  public static long certainEnd(long sentAt, long span) {
    long certain = span / 100 * CERTAIN_PERCENT + span % 100 * CERTAIN_PERCENT / 100;
    return saturatingAdd(sentAt, Math.max(0, certain - SLACK));
  }

  protected long safeEnd(long sentAt, long span) {
    return certainEnd(sentAt, span);
  }

  /** A request took effect. Refusals are not reported here. */
  public synchronized void answered(long sentAt, long logicalMs) {
    Sample sample = new Sample(sentAt, logicalMs);
    if (sample.isBetterThan(best)) {
      best = sample;
    }
    lastAnsweredSentAt = Math.max(lastAnsweredSentAt, sentAt);
  }

  /** As {@link #answered}, for the efficiency tier: it does not keep the session alive. */
  public synchronized void answeredBestEffort(long sentAt, long logicalMs) {
    Sample sample = new Sample(sentAt, logicalMs);
    if (bestEffort == null || sample.isBetterThan(bestEffort)) {
      bestEffort = sample;
    }
  }

  /** Another leader has another clock. */
  public synchronized void bestEffortRestarts() {
    bestEffort = null;
  }

  /** Ends the holds of the efficiency tier, and returns which they were. */
  public synchronized List<Long> leaderLost() {
    List<Long> ended = new ArrayList<>();
    Iterator<Map.Entry<Long, HoldLease>> all = holds.entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry<Long, HoldLease> hold = all.next();
      if (hold.getValue().isBestEffort) {
        ended.add(hold.getKey());
        all.remove();
      }
    }
    return ended;
  }

  public synchronized void granted(long hold, Long deadlineMs, boolean isBestEffort) {
    HoldLease lease = new HoldLease(isBestEffort, deadlineMs);
    noteSpan(lease);
    holds.put(hold, lease);
  }

  private void noteSpan(HoldLease lease) {
    Sample sample = sampleFor(lease);
    boolean hasSpan = lease.ownDeadlineMs != null && sample != null;
    lease.ownSpan = hasSpan ? spanUntil(lease.ownDeadlineMs, sample) : 0;
  }

  /** Of several sendings the first counts. A renewal without a TTL keeps that of the hold. */
  public synchronized void renewalSent(long hold, long renewal, long sentAt, Long ttl) {
    HoldLease lease = holds.get(hold);
    if (lease != null) {
      Long end = ttl == null ? null : safeEnd(sentAt, ttl);
      lease.unansweredRenewals.putIfAbsent(renewal, new UnansweredRenewal(end));
    }
  }

  /** The deadline of the renewal that was applied last counts. If unknown, the earlier one does. */
  public synchronized void renewed(long hold, long renewal, Long deadlineMs) {
    HoldLease lease = holds.get(hold);
    if (lease == null) {
      return;
    }
    UnansweredRenewal sent = lease.unansweredRenewals.remove(renewal);
    if (sent == null || !sent.isOvertaken || lease.ownDeadlineMs == null) {
      lease.ownDeadlineMs = deadlineMs;
    } else if (deadlineMs != null) {
      lease.ownDeadlineMs = Math.min(lease.ownDeadlineMs, deadlineMs);
    }
    lease.unansweredRenewals.values().forEach(other -> other.isOvertaken = true);
    noteSpan(lease);
  }

  /** The renewal did not take effect, and will not. */
  public synchronized void renewalRefused(long hold, long renewal) {
    HoldLease lease = holds.get(hold);
    if (lease != null) {
      lease.unansweredRenewals.remove(renewal);
    }
  }

  public synchronized void ended(long hold) {
    holds.remove(hold);
  }

  public synchronized long sessionValidUntil() {
    return safeEnd(lastAnsweredSentAt, span);
  }

  /** The hold certainly lives until then; empty if there is no such hold. */
  public synchronized OptionalLong validUntil(long hold) {
    HoldLease lease = holds.get(hold);
    return lease == null
        ? OptionalLong.empty()
        : OptionalLong.of(Math.min(sessionValidUntil(), ownEnd(lease)));
  }

  public synchronized boolean hasOwnEnd(long hold) {
    HoldLease lease = holds.get(hold);
    return lease != null && ownEnd(lease) != Long.MAX_VALUE;
  }

  public synchronized boolean endsBeforeSession(long hold) {
    HoldLease lease = holds.get(hold);
    return lease != null && ownEnd(lease) < sessionValidUntil();
  }

  /** From then on a third of its time is left. */
  public synchronized OptionalLong atRiskFrom(long hold) {
    HoldLease lease = holds.get(hold);
    if (lease == null) {
      return OptionalLong.empty();
    }
    long atRisk = Math.max(0, sessionValidUntil() - span / 3);
    long ownEnd = ownEnd(lease);
    if (ownEnd != Long.MAX_VALUE) {
      atRisk = Math.min(atRisk, Math.max(0, ownEnd - lease.ownSpan / 3));
    }
    return OptionalLong.of(atRisk);
  }

  public synchronized long heartbeatDue() {
    return lastAnsweredSentAt + span / 3;
  }

  /** {@code Long.MAX_VALUE} if only the session bounds the hold. */
  private long ownEnd(HoldLease lease) {
    long end = Long.MAX_VALUE;
    for (UnansweredRenewal sent : lease.unansweredRenewals.values()) {
      if (sent.end != null) {
        end = Math.min(end, sent.end);
      }
    }
    if (lease.ownDeadlineMs != null) {
      Sample sample = sampleFor(lease);
      long own = 0;
      if (sample != null) {
        own = safeEnd(sample.sentAt, spanUntil(lease.ownDeadlineMs, sample));
      }
      end = Math.min(end, own);
    }
    return end;
  }

  private Sample sampleFor(HoldLease lease) {
    return lease.isBestEffort ? bestEffort : best;
  }

  private static long spanUntil(long deadlineMs, Sample sample) {
    long spanMs = Math.max(0, deadlineMs - sample.logicalMs);
    return spanMs > Long.MAX_VALUE / MS ? Long.MAX_VALUE : spanMs * MS;
  }

  private static long saturatingAdd(long left, long right) {
    long sum = left + right;
    return sum < left ? Long.MAX_VALUE : sum;
  }
}

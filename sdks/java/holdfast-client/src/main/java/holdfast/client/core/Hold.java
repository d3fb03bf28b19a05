package holdfast.client.core;

import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.v1.Grant;
import holdfast.v1.Guarantee;
import holdfast.v1.Tier;
import java.util.OptionalLong;

/** A lock that is held, as the session and its guard both know it. */
public final class Hold {
  /** By which the session finds a hold: the request that it is known by, and the guard's own. */
  record Key(long acquire, long entry) {}

  final Key key;

  /** Guards that entered one hold several times have one lease. */
  final long lease;

  /** The request of the program that led to it. */
  final long call;

  final HeldAs heldAs;
  final Loss loss;

  private final String name;
  private final boolean isBestEffort;
  private final Long since;
  private final Leases leases;

  /** The cluster itself ended the hold, so there is nothing to release. */
  boolean hasEnded;

  /**
   * If the library renews the hold: its TTL, when the next is due, and whether one is under way.
   */
  long renews;

  long renewalDue;
  boolean isRenewing;

  /** Another acquire has entered it. */
  boolean wasEntered;

  Hold(
      Key key,
      long lease,
      long call,
      Grant grant,
      HeldAs heldAs,
      Leases leases,
      Loss loss,
      Long since) {
    this.key = key;
    this.lease = lease;
    this.call = call;
    this.name = grant.getName();
    this.isBestEffort = grant.getGuarantee() != Guarantee.GUARANTEE_LINEARIZABLE;
    this.heldAs = heldAs;
    this.leases = leases;
    this.loss = loss;
    this.since = since;
  }

  public String name() {
    return name;
  }

  public boolean isBestEffort() {
    return isBestEffort;
  }

  /** The age to ask for the next lock of the same transaction with; null if none was given. */
  public Long since() {
    return since;
  }

  public HeldAs.Terms terms() {
    return heldAs.terms();
  }

  public Loss loss() {
    return loss;
  }

  Tier tier() {
    return isBestEffort ? Tier.TIER_EFFICIENCY : Tier.TIER_CORRECTNESS;
  }

  /** Whether both are the same hold in the cluster. */
  boolean isSameAs(Hold other) {
    return key.acquire == other.key.acquire && name.equals(other.name);
  }

  /** The cluster has reported the end of the hold. */
  void end(LossReason reason) {
    hasEnded = true;
    // The cluster has one reason for both.
    boolean isSessions = reason == LossReason.HOLD_TTL && !leases.hasOwnEnd(lease);
    loss.report(isSessions ? LossReason.SESSION_EXPIRED : reason);
  }

  /** Throws unless the lock is certainly held. */
  public void check(long now) {
    OptionalLong validUntil = leases.validUntil(lease);
    if (validUntil.isEmpty() || now >= validUntil.getAsLong()) {
      boolean isOwn = leases.endsBeforeSession(lease);
      loss.report(isOwn ? LossReason.OWN_TIME_OVER : LossReason.EXPIRED);
    }
    LossReason reason = loss.reason();
    if (reason == null && heldAs.isLeaving()) {
      reason = LossReason.TRANSFERRED;
    }
    if (reason != null) {
      throw new LostException(reason);
    }
  }

  /** 0 if it has ended. */
  public long validUntil() {
    return leases.validUntil(lease).orElse(0);
  }

  public long atRiskFrom() {
    return leases.atRiskFrom(lease).orElse(0);
  }
}

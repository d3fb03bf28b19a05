package holdfast.client.core;

import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Tier;

/** A request that has no answer yet: what a program asked, and how it looks on the wire. */
public final class Request {
  static final long NEVER = Long.MIN_VALUE;

  private final Operation template;

  /** The hold that it is about; null if it is about none. */
  final Hold hold;

  /** Null once no caller waits for the answer. */
  Object caller;

  long waitsUntil;

  /** Under which the program knows it; 0 if the program does not. */
  long call;

  /** The TTL that the library keeps renewing; 0 for none. */
  final long renews;

  boolean isAbandoned;
  boolean isParked;

  /** The first sending: a retry may get the answer that was made for it. */
  long firstSentAt = NEVER;

  /** An earlier stream carried it, too. */
  boolean wasSentBefore;

  long answerDue = NEVER;

  private Request(Operation template, Hold hold, long renews) {
    this.template = template;
    this.hold = hold;
    this.renews = renews;
  }

  public static Request of(Operation template) {
    return new Request(template, null, 0);
  }

  /** The library renews what is granted. */
  public static Request renewing(Operation template, long renews) {
    return new Request(template, null, renews);
  }

  public static Request about(Hold hold, Operation template) {
    return new Request(template, hold, 0);
  }

  public static Request releaseOf(Hold hold) {
    return about(hold, Operations.release());
  }

  /** A copy of a request for new locks, for another try that waits for so long. */
  public Request again(long waitMs) {
    Operation.Builder copy = template.toBuilder();
    switch (kind()) {
      case ACQUIRE -> copy.getAcquireBuilder().setWaitMs(waitMs);
      case ACQUIRE_ALL -> copy.getAcquireAllBuilder().setWaitMs(waitMs);
      default -> throw new IllegalArgumentException("what is about a hold stays in its session");
    }
    return new Request(copy.build(), null, renews);
  }

  public Request calledBy(Object caller, long waitsUntil) {
    this.caller = caller;
    this.waitsUntil = waitsUntil;
    return this;
  }

  public KindCase kind() {
    return template.getKindCase();
  }

  Operation template() {
    return template;
  }

  public boolean wasSent() {
    return firstSentAt != NEVER;
  }

  boolean isAcquire() {
    return kind() == KindCase.ACQUIRE || kind() == KindCase.ACQUIRE_ALL;
  }

  /** What can stand in a queue. */
  public boolean canWait() {
    return isAcquire() || kind() == KindCase.CONVERT;
  }

  /** Whether the efficiency tier answers it. */
  boolean isBestEffort() {
    if (hold != null) {
      return hold.isBestEffort();
    }
    Tier tier =
        switch (kind()) {
          case ACQUIRE -> template.getAcquire().getTier();
          case ACQUIRE_ALL -> template.getAcquireAll().getTier();
          case CANCEL -> template.getCancel().getTier();
          case RELEASE -> template.getRelease().getTier();
          default -> Tier.TIER_UNSPECIFIED;
        };
    return tier == Tier.TIER_EFFICIENCY;
  }

  /** When the actor first asked, in logical time; null if it was not said. */
  Long since() {
    return switch (kind()) {
      case ACQUIRE ->
          template.getAcquire().hasSinceMs() ? template.getAcquire().getSinceMs() : null;
      case ACQUIRE_ALL ->
          template.getAcquireAll().hasSinceMs() ? template.getAcquireAll().getSinceMs() : null;
      default -> null;
    };
  }

  int nameCount() {
    return Math.max(1, template.getAcquireAll().getMembersCount());
  }

  /** How long the answer may take because the request is to wait. */
  long ownWait() {
    long waitMs =
        switch (kind()) {
          case ACQUIRE -> template.getAcquire().getWaitMs();
          case ACQUIRE_ALL -> template.getAcquireAll().getWaitMs();
          case CONVERT -> template.getConvert().getWaitMs();
          default -> 0;
        };
    return waitMs * Leases.MS;
  }

  /** Whether a node that sent it back is to get it again. */
  boolean isWorthRetrying() {
    if (canWait()) {
      return !isAbandoned;
    }
    return switch (kind()) {
      case RENEW, PROCLAIM, STATUS -> caller != null;
      default -> true;
    };
  }

  Operation operation(long requestId) {
    return Operations.complete(template, requestId, hold);
  }
}

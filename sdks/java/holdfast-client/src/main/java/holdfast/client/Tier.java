package holdfast.client;

/** Which of two kinds of lock is meant. The same name in both is two locks. */
public enum Tier {
  /** The replicated lock table. */
  CORRECTNESS,
  /** The leader's memory: faster, and for a moment two can hold the lock. */
  EFFICIENCY;

  holdfast.v1.Tier wire() {
    return this == EFFICIENCY
        ? holdfast.v1.Tier.TIER_EFFICIENCY
        : holdfast.v1.Tier.TIER_CORRECTNESS;
  }
}

package holdfast.client;

/** What to do when another holder is in the way. */
public enum Policy {
  /** Wait, unless that would close a cycle of waits. */
  DETECT,
  /** Wait, whatever comes of it. */
  WAIT,
  /** Wait for younger actors only. */
  WAIT_DIE,
  /** Take the preemptible holds of younger actors away; wait for the rest. */
  WOUND_WAIT;

  holdfast.v1.Policy wire() {
    return switch (this) {
      case DETECT -> holdfast.v1.Policy.POLICY_DETECT;
      case WAIT -> holdfast.v1.Policy.POLICY_WAIT;
      case WAIT_DIE -> holdfast.v1.Policy.POLICY_WAIT_DIE;
      case WOUND_WAIT -> holdfast.v1.Policy.POLICY_WOUND_WAIT;
    };
  }
}

package holdfast.client.core;

import holdfast.v1.Grant;
import holdfast.v1.Mode;

/**
 * The state of a hold in the cluster. Guards that entered one hold several times share it, and read
 * it from any thread.
 */
public final class HeldAs {
  /** What a guard gives out, as one value: a conversion changes all of it at once. */
  public record Terms(Mode mode, long token, String fence) {}

  private volatile Terms terms;
  private volatile boolean isLeaving;

  HeldAs(Grant grant) {
    convert(grant);
  }

  public Terms terms() {
    return terms;
  }

  /** A transfer is under way, or may have happened. */
  public boolean isLeaving() {
    return isLeaving;
  }

  void setLeaving(boolean leaving) {
    isLeaving = leaving;
  }

  void convert(Grant grant) {
    terms = new Terms(grant.getMode(), grant.getToken(), grant.getFence());
  }
}

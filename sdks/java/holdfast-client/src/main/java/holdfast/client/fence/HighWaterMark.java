package holdfast.client.fence;

/** The highest token that a resource in this process has seen. Threads can share it. */
public final class HighWaterMark {
  private long token;

  public HighWaterMark(long token) {
    this.token = token;
  }

  public synchronized long token() {
    return token;
  }

  /** Lets the claim pass and remembers it, or throws {@code FenceRefusedException}. */
  public synchronized void raiseTo(Fence.Claim claim) {
    if (claim.token() < token) {
      throw claim.stale(token);
    }
    token = claim.token();
  }
}

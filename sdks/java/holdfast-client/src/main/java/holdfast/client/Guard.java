package holdfast.client;

import holdfast.client.core.Hold;
import holdfast.client.core.Operations;
import holdfast.client.core.Request;
import holdfast.client.errors.CancelledException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;

/** One held lock. */
public sealed class Guard extends HeldLocks permits Leadership {
  Guard(Engine engine, List<Hold> holds) {
    super(engine, holds);
  }

  private Hold hold() {
    return holds().get(0);
  }

  public final String name() {
    return hold().name();
  }

  /** The fencing token. Each call reads the clock, and throws once the lock may have ended. */
  public final long token() {
    check();
    return hold().terms().token();
  }

  /** The fence: the token as text, which the resource checks; empty for a permit. */
  public final String fence() {
    check();
    return hold().terms().fence();
  }

  public final Mode mode() {
    return Mode.of(hold().terms().mode());
  }

  public final boolean isExclusive() {
    return mode() == Mode.EXCLUSIVE;
  }

  /** Whether it is of the efficiency tier, where two holders can overlap for a moment. */
  public final boolean isBestEffort() {
    return hold().isBestEffort();
  }

  /**
   * The start time by which the age of this request is judged, in logical milliseconds. It is the
   * {@code since} that the request stated, or the time of the answer if that is earlier. Empty if
   * the request stated none. Pass it to {@link Terms#since} when the same piece of work asks for
   * its next lock.
   */
  public final OptionalLong since() {
    Long since = hold().since();
    return since == null ? OptionalLong.empty() : OptionalLong.of(since);
  }

  /** Releases the lock. The result says whether the hold had ended before. */
  public final Released release() {
    return releaseAll().get(0);
  }

  /**
   * Starts the hold's own TTL again; needed only after {@code autoRenew(false)}. A hold without a
   * TTL of its own needs no renewal.
   */
  public final void renew() {
    check();
    run(Request.about(hold(), Operations.renew(null)), Duration.ZERO);
  }

  /** As {@link #renew()}, with another TTL, which can be shorter. */
  public final void renew(Duration ttl) {
    check();
    run(Request.about(hold(), Operations.renew(ttl.toMillis())), Duration.ZERO);
  }

  /** Turns the exclusive hold into a shared one, at once and under the same token. */
  public final void convertToShared() {
    convert(Mode.SHARED, Duration.ZERO);
  }

  /**
   * Turns the shared hold into an exclusive one as soon as the other readers are gone, and waits
   * for that at most {@code wait}. The hold gets a new token. The lock is held throughout.
   */
  public final void convertToExclusive(Duration wait) {
    convert(Mode.EXCLUSIVE, wait);
  }

  private void convert(Mode mode, Duration wait) {
    check();
    Duration checked = Checks.wait(wait);
    Request request = Request.about(hold(), Operations.convert(mode.wire(), checked.toMillis()));
    run(request, checked);
  }

  /** Replaces the metadata of the hold, which is shown to people who look at the lock. */
  public final void proclaim(byte[] metadata) {
    check();
    run(Request.about(hold(), Operations.proclaim(Checks.metadata(metadata))), Duration.ZERO);
  }

  /** As {@link #proclaim(byte[])}, in UTF-8. */
  public final void proclaim(String metadata) {
    proclaim(metadata.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * Hands an exclusive lock to a session that waits for it. Returns the fencing token under which
   * that session now holds the lock.
   */
  public final long transfer(String publicSessionId) {
    check();
    return (Long) run(Request.about(hold(), Operations.transfer(publicSessionId)), Duration.ZERO);
  }

  private Object run(Request request, Duration wait) {
    try {
      return engine().run(request, wait, null);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new CancelledException();
    }
  }
}

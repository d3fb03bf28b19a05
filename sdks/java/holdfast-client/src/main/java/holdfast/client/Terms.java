package holdfast.client;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.function.LongConsumer;

/**
 * On which terms locks are asked for: what {@link LockRequest} and {@link LockAllRequest} have in
 * common.
 *
 * @param <T> the request itself
 */
public abstract sealed class Terms<T extends Terms<T>> permits LockRequest, LockAllRequest {
  Duration wait = Duration.ZERO;
  Duration ttl;
  boolean renews = true;
  Duration maxHold;
  Duration lockDelay;
  ByteString metadata = ByteString.EMPTY;
  Long actor;
  Policy policy = Policy.DETECT;
  Long since;
  boolean isPreemptible;
  Tier tier = Tier.CORRECTNESS;
  String traceparent;
  LongConsumer onQueued;
  boolean interruptsOnLoss;

  abstract T self();

  /** How long to wait in the queue. Zero, the default, means to try once. */
  public T waitFor(Duration duration) {
    wait = Checks.wait(duration);
    return self();
  }

  /** The hold's own TTL, which the library renews unless {@link #autoRenew} says otherwise. */
  public T ttl(Duration duration) {
    ttl = duration;
    return self();
  }

  /** With {@code false}, a hold with a TTL ends by itself, unless the program renews it. */
  public T autoRenew(boolean isWanted) {
    renews = isWanted;
    return self();
  }

  /** The hold ends after this time, whatever is renewed. */
  public T maxHold(Duration duration) {
    maxHold = duration;
    return self();
  }

  /** If the hold ends without being given back, the lock stays closed for so long. */
  public T lockDelay(Duration duration) {
    lockDelay = duration;
    return self();
  }

  /** Shown to people who look at the lock; at most 1,024 bytes. */
  public T metadata(byte[] content) {
    metadata = Checks.metadata(content);
    return self();
  }

  /** As {@link #metadata(byte[])}, in UTF-8. */
  public T metadata(String content) {
    return metadata(content.getBytes(StandardCharsets.UTF_8));
  }

  /** Which task of the session asks. By default, each thread is an actor of its own. */
  public T actor(long number) {
    actor = number;
    return self();
  }

  /** What to do when another holder is in the way. */
  public T policy(Policy chosen) {
    policy = chosen;
    return self();
  }

  /** When the actor first asked, as {@code DiedException.since} told it. */
  public T since(long logicalMs) {
    since = logicalMs;
    return self();
  }

  /** An older actor that asks with {@link Policy#WOUND_WAIT} may take the hold away. */
  public T preemptible() {
    isPreemptible = true;
    return self();
  }

  /** Which of two kinds of lock is meant. */
  public T tier(Tier chosen) {
    tier = chosen;
    return self();
  }

  /** Of which span this is part, as the W3C's {@code traceparent} writes it. */
  public T traceparent(String text) {
    traceparent = text;
    return self();
  }

  /** Calls back with the position when the request stands in the queue. */
  public T onQueued(LongConsumer callback) {
    onQueued = callback;
    return self();
  }

  /**
   * Interrupts the thread that acquires when the lock is lost before it is released. The interrupt
   * is taken back when the guard is closed.
   */
  public T interruptOnLoss() {
    interruptsOnLoss = true;
    return self();
  }

  long renewedTtl() {
    return ttl != null && renews ? ttl.toMillis() * holdfast.client.core.Leases.MS : 0;
  }

  long actorOr(long other) {
    return actor == null ? other : actor;
  }
}

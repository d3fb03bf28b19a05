package holdfast.client;

import holdfast.v1.EventKind;
import holdfast.v1.LockSummary;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/**
 * Something that happened, or a lock of the snapshot.
 *
 * @param kind what happened
 * @param names of the locks; nearly always one
 * @param token of the hold; 0 if there is none
 * @param session the public id of the session; may be empty
 * @param metadata what the holder shows
 * @param reason why a hold or a session ended, such as {@code ttl}; empty otherwise
 * @param by the operator, if one stepped in
 * @param detail further words
 * @param heldFor of a hold that ended, or that is there
 * @param time by the clock of the node that tells; for display only
 * @param holders how many hold a lock of the snapshot
 * @param waiters how many wait for a lock of the snapshot
 */
public record WatchEvent(
    Kind kind,
    List<String> names,
    long token,
    String session,
    byte[] metadata,
    String reason,
    String by,
    String detail,
    Optional<Duration> heldFor,
    Optional<Instant> time,
    long holders,
    long waiters) {

  /** What happened. The last four are no events of the cluster. */
  public enum Kind {
    GRANTED,
    QUEUED,
    RELEASED,
    EXPIRED,
    WOUNDED,
    BROKEN,
    TRANSFERRED,
    REFUSED,
    WAIT_ENDED,
    CONVERTED,
    PROCLAIMED,
    REOPENED,
    INTERVENED,
    FROZEN,
    THAWED,
    SESSION_OPENED,
    SESSION_ENDED,
    KILLED,
    ACCESS_CHANGED,
    /** A lock of the snapshot. */
    PRESENT,
    /** The snapshot is over. */
    SNAPSHOT_COMPLETE,
    /** Events may be missing. A snapshot follows. */
    RESTARTED,
    /** An event that this version does not know. */
    UNKNOWN;

    private static Kind of(EventKind kind) {
      try {
        return valueOf(kind.name().substring("EVENT_KIND_".length()));
      } catch (IllegalArgumentException | StringIndexOutOfBoundsException unknown) {
        return UNKNOWN;
      }
    }

    /** The name that all libraries share. */
    public String code() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  /** The first of the names; empty if there is none. */
  public String name() {
    return names.isEmpty() ? "" : names.get(0);
  }

  static WatchEvent of(Kind kind, String detail) {
    return new WatchEvent(
        kind,
        List.of(),
        0,
        "",
        new byte[0],
        "",
        "",
        detail,
        Optional.empty(),
        Optional.empty(),
        0,
        0);
  }

  static WatchEvent of(LockSummary lock) {
    return new WatchEvent(
        Kind.PRESENT,
        List.of(lock.getName()),
        lock.getToken(),
        lock.getPublicSessionId(),
        lock.getMetadata().toByteArray(),
        "",
        "",
        "",
        Optional.of(Duration.ofMillis(lock.getHeldForMs())),
        Optional.empty(),
        lock.getHolderCount(),
        lock.getWaiterCount());
  }

  static WatchEvent of(holdfast.v1.WatchEvent told) {
    String reason = told.getReason().name().toLowerCase(Locale.ROOT);
    return new WatchEvent(
        Kind.of(told.getKind()),
        List.copyOf(told.getNamesList()),
        told.getToken(),
        told.getPublicSessionId(),
        told.getMetadata().toByteArray(),
        told.getReasonValue() == 0 ? "" : reason.replaceFirst("^end_reason_", ""),
        told.getBy(),
        told.getDetail(),
        told.hasHeldForMs()
            ? Optional.of(Duration.ofMillis(told.getHeldForMs()))
            : Optional.empty(),
        Optional.of(Instant.ofEpochMilli(told.getUnixMs())),
        0,
        0);
  }
}

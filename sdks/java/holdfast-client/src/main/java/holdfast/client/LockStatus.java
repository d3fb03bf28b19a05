package holdfast.client;

import com.google.protobuf.ByteString;
import holdfast.v1.Owner;
import holdfast.v1.StatusResponse;
import java.util.List;

/**
 * Who holds a lock and who waits for it: how many, and the first ten of each.
 *
 * @param name of the lock
 * @param holders the first of them
 * @param waiters the first of them
 * @param holderCount how many hold it
 * @param waiterCount how many wait for it
 */
public record LockStatus(
    String name,
    List<Participant> holders,
    List<Participant> waiters,
    long holderCount,
    long waiterCount) {

  /**
   * A holder or a waiter.
   *
   * @param session the public id of its session
   * @param token of its hold; 0 for a waiter
   * @param metadata what it shows
   * @param application of its session
   * @param host of its session
   */
  public record Participant(
      String session, long token, byte[] metadata, String application, String host) {

    private static Participant of(String session, long token, ByteString metadata, Owner owner) {
      return new Participant(
          session, token, metadata.toByteArray(), owner.getApplication(), owner.getHost());
    }

    /** The metadata as UTF-8. */
    public String metadataText() {
      return new String(metadata, java.nio.charset.StandardCharsets.UTF_8);
    }
  }

  static LockStatus of(StatusResponse told) {
    return new LockStatus(
        told.getName(),
        told.getHoldersList().stream()
            .map(
                it ->
                    Participant.of(
                        it.getPublicSessionId(), it.getToken(), it.getMetadata(), it.getOwner()))
            .toList(),
        told.getWaitersList().stream()
            .map(it -> Participant.of(it.getPublicSessionId(), 0, it.getMetadata(), it.getOwner()))
            .toList(),
        told.getHolderCount(),
        told.getWaiterCount());
  }
}

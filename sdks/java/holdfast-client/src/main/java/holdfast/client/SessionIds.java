package holdfast.client;

import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.function.Supplier;

/**
 * Draws the ids of sessions. The sessions of a client in different groups have the same id, so that
 * a person finds all of them by one. A group never sees the id of an ended session again, so a
 * session that was lost is followed by one with a new id. A group whose own session is lost takes
 * the newest id of the client.
 */
final class SessionIds {
  private static final SecureRandom SECRETS = new SecureRandom();
  private static final int BYTES = 16;

  private long count;
  private String newest;

  /** For the sessions in one group, one after the other. */
  Supplier<String> ofOneGroup() {
    long[] used = {0};
    return () -> next(used);
  }

  private synchronized String next(long[] used) {
    if (count == used[0]) {
      byte[] id = new byte[BYTES];
      SECRETS.nextBytes(id);
      newest = HexFormat.of().formatHex(id);
      count++;
    }
    used[0] = count;
    return newest;
  }
}

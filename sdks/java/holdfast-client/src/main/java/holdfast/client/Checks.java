package holdfast.client;

import com.google.protobuf.ByteString;
import holdfast.client.errors.RejectedException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** What can be refused without asking a node. */
final class Checks {
  private static final int NAME_BYTES_MAX = 512;
  private static final int METADATA_BYTES_MAX = 1024;

  /** The longest that a cluster lets a request wait. */
  static final Duration WAIT_MAX = Duration.ofDays(1);

  private Checks() {}

  static String name(String name) {
    int bytes = name.getBytes(StandardCharsets.UTF_8).length;
    boolean isClean =
        name.codePoints()
            .noneMatch(
                it -> Character.isISOControl(it) || Character.getType(it) == Character.SURROGATE);
    if (bytes < 1 || bytes > NAME_BYTES_MAX || !isClean) {
      throw new RejectedException(
          "invalid_name",
          "a lock name has 1 to "
              + NAME_BYTES_MAX
              + " bytes and no control characters; choose another",
          false);
    }
    return name;
  }

  static ByteString metadata(byte[] metadata) {
    if (metadata.length > METADATA_BYTES_MAX) {
      throw new RejectedException(
          "invalid_metadata",
          "metadata has at most " + METADATA_BYTES_MAX + " bytes; send less",
          false);
    }
    return ByteString.copyFrom(metadata);
  }

  static Duration wait(Duration wait) {
    if (wait.isNegative()) {
      throw new IllegalArgumentException("a wait cannot be negative");
    }
    return wait.compareTo(WAIT_MAX) > 0 ? WAIT_MAX : wait;
  }
}

package holdfast.client.core;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32C;

/** The slot of a lock name. Each slot belongs to one group of the cluster. */
public final class Slots {
  /** How many slots there are. */
  public static final int COUNT = 4_096;

  private Slots() {}

  /** The CRC32C of the tag, or of the whole name if it has none, modulo the number of slots. */
  public static int of(String name) {
    CRC32C sum = new CRC32C();
    sum.update(hashed(name).getBytes(StandardCharsets.UTF_8));
    return (int) (sum.getValue() % COUNT);
  }

  /**
   * The tag is the text between the first <code>{</code> and the next <code>}</code> behind it. If
   * there is no text between them, the search goes on behind that <code>}</code>.
   */
  private static String hashed(String name) {
    int from = 0;
    while (true) {
      int open = name.indexOf('{', from);
      int close = open < 0 ? -1 : name.indexOf('}', open);
      if (close < 0) {
        return name;
      }
      if (close > open + 1) {
        return name.substring(open + 1, close);
      }
      from = close + 1;
    }
  }
}

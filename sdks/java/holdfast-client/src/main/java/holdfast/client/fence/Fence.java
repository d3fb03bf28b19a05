package holdfast.client.fence;

import holdfast.client.errors.FenceRefusedException;
import holdfast.client.errors.FenceRefusedException.Kind;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The rule by which a resource lets a write pass: for resources that check tokens in Java.
 *
 * <p>The check must be one step with the write that it protects, and the mark must be as durable as
 * the data.
 */
public final class Fence {
  private static final Pattern FULL_FORM =
      Pattern.compile("hf1\\.([LB])\\.([0-9a-f]{16})\\.(0|[1-9][0-9]{0,18})");
  private static final int HASH_BYTES = 8;

  private Fence() {}

  /**
   * A token that belongs to the resource. Whether it is out of date is not known yet.
   *
   * @param resource the name that the lock has
   * @param token the number
   */
  public record Claim(String resource, long token) {
    /** The refusal of this token, because a higher one was seen. */
    public FenceRefusedException stale(long highest) {
      String words =
          "token %d for '%s' is out of date, %d has been seen: the lock was lost. Do not send this"
              + " write again: take the lock again, and begin with reading";
      return new FenceRefusedException(
          Kind.STALE, String.format(words, token, resource, highest), highest);
    }
  }

  /**
   * All that can be said of a token without knowing any other. Throws {@code
   * FenceRefusedException}.
   *
   * @param fence the token in full form, as the writer sent it; null if it sent none
   * @param resource the name that the lock has. It must come from the resource, not from the writer
   */
  public static Claim admit(String fence, String resource) {
    return admit(fence, resource, false);
  }

  /**
   * As {@link #admit(String, String)}; with {@code true} for tokens of the efficiency tier only.
   */
  public static Claim admit(String fence, String resource, boolean acceptsBestEffort) {
    String of = "the fencing token for '" + resource + "' ";
    if (fence == null) {
      throw new FenceRefusedException(
          Kind.MISSING,
          "the write to '" + resource + "' came without a fencing token: send guard.fence()");
    }
    if (fence.isEmpty()) {
      throw new FenceRefusedException(
          Kind.NOT_FENCEABLE, of + "is empty, as that of a permit is: lock exclusively");
    }
    Matcher parts = FULL_FORM.matcher(fence);
    long token = parts.matches() ? number(parts.group(3)) : -1;
    if (token < 0) {
      throw new FenceRefusedException(
          Kind.MALFORMED, of + "cannot be read: send guard.fence() as it was granted");
    }
    if (token == 0) {
      throw new FenceRefusedException(Kind.ZERO, of + "has the number 0, which is never granted");
    }
    if (!parts.group(2).equals(nameHash(resource))) {
      throw new FenceRefusedException(
          Kind.OTHER_RESOURCE,
          "the fencing token belongs to another resource than '" + resource + "': take that lock");
    }
    boolean isBestEffort = parts.group(1).equals("B");
    if (isBestEffort && !acceptsBestEffort) {
      throw new FenceRefusedException(
          Kind.BEST_EFFORT,
          "'" + resource + "' takes no best-effort token: take the lock in the correctness tier");
    }
    if (!isBestEffort && acceptsBestEffort) {
      throw new FenceRefusedException(
          Kind.NOT_BEST_EFFORT, "'" + resource + "' takes tokens of the efficiency tier only");
    }
    return new Claim(resource, token);
  }

  /** -1 if it is too large. */
  private static long number(String digits) {
    try {
      return Long.parseLong(digits);
    } catch (NumberFormatException tooLarge) {
      return -1;
    }
  }

  private static String nameHash(String name) {
    try {
      byte[] hash =
          MessageDigest.getInstance("SHA-256").digest(name.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(hash, 0, HASH_BYTES);
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException("every Java has SHA-256", impossible);
    }
  }
}

package holdfast.jedis;

import holdfast.client.Guard;
import holdfast.client.fence.Fence;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import redis.clients.jedis.commands.ScriptingKeyCommands;

/**
 * A key of Redis, and beside it that of its mark. One script checks the token and runs one command.
 *
 * <pre>{@code
 * FencedKey key = FencedKey.of("order:42");
 * key.run(jedis, guard, "SET", key.data(), "paid");
 * }</pre>
 *
 * <p>The mark lies in the same hash slot. It must be as durable as the data: use {@code appendonly
 * yes} and {@code appendfsync always} where a late write is damage, and never evict marks.
 */
public final class FencedKey {
  private static final String SCRIPT = script();
  private static final String MARK_PREFIX = "holdfast:mark:";
  private static final Pattern HASH_TAG = Pattern.compile("[^{]*\\{[^}]+}.*", Pattern.DOTALL);

  private final String data;
  private final String resource;
  private final String mark;
  private boolean acceptsBestEffort;

  private FencedKey(String data, String resource) {
    this.data = data;
    this.resource = resource;
    Matcher tag = HASH_TAG.matcher(data);
    if (tag.matches()) {
      // What stands before it has no brace, so the mark has the same tag as the data.
      mark = MARK_PREFIX + data;
    } else if (data.contains("{") || data.contains("}")) {
      throw new IllegalArgumentException(
          "the key '"
              + data
              + "' has braces that are no hash tag: write {tag}rest, or leave them out");
    } else {
      mark = MARK_PREFIX + "{" + data + "}";
    }
  }

  /** A key that has the name of its lock. */
  public static FencedKey of(String data) {
    return new FencedKey(data, data);
  }

  /** A key that is protected by the lock with the name {@code resource}. */
  public static FencedKey of(String data, String resource) {
    return new FencedKey(data, resource);
  }

  /** The key takes tokens of the efficiency tier, and no others. */
  public FencedKey acceptBestEffort() {
    acceptsBestEffort = true;
    return this;
  }

  public String data() {
    return data;
  }

  /** The key of the mark. */
  public String mark() {
    return mark;
  }

  /**
   * Runs one command that touches this key, and others of the same hash tag, if the token passes.
   * Throws {@code FenceRefusedException} otherwise, and {@code LostException} if the guard itself
   * knows that the lock is lost.
   *
   * @return what Redis answered
   */
  public Object run(ScriptingKeyCommands jedis, Guard guard, String... command) {
    return run(jedis, guard.fence(), command);
  }

  /** As {@link #run(ScriptingKeyCommands, Guard, String...)}, for a token in full form. */
  public Object run(ScriptingKeyCommands jedis, String fence, String... command) {
    Fence.Claim claim = Fence.admit(fence, resource, acceptsBestEffort);
    List<String> arguments = new ArrayList<>(List.of(String.valueOf(claim.token())));
    arguments.addAll(List.of(command));
    List<?> told = (List<?>) jedis.eval(SCRIPT, List.of(mark, data), arguments);
    if (Long.valueOf(0).equals(told.get(0))) {
      throw claim.stale(Long.parseLong(String.valueOf(told.get(1))));
    }
    return told.size() > 1 ? told.get(1) : null;
  }

  private static String script() {
    try (InputStream content = FencedKey.class.getResourceAsStream("write.lua")) {
      return new String(content.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}

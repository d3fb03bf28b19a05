package holdfast.client.fence;

import holdfast.client.Guard;
import holdfast.client.errors.FenceRefusedException;
import holdfast.client.errors.FenceRefusedException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Fencing in PostgreSQL: a transaction goes on only if its token is not out of date.
 *
 * <pre>{@code
 * connection.setAutoCommit(false);
 * Fences.jdbc(connection).check(guard);
 * // the writes
 * connection.commit();
 * }</pre>
 *
 * <p>{@link #migrate} creates what it needs, once. After a refusal the transaction can only be
 * rolled back.
 */
public final class JdbcFence {
  private static final Map<String, Kind> KINDS =
      Map.of(
          "ZF001", Kind.STALE,
          "ZF002", Kind.MISSING,
          "ZF003", Kind.MALFORMED,
          "ZF004", Kind.ZERO,
          "ZF005", Kind.OTHER_RESOURCE,
          "ZF006", Kind.BEST_EFFORT,
          "ZF007", Kind.NOT_FENCEABLE);
  private static final Pattern HIGHEST = Pattern.compile("highest: ([0-9]+)");

  private final Connection connection;
  private boolean acceptsBestEffort;

  JdbcFence(Connection connection) {
    this.connection = connection;
  }

  /** The resource takes tokens of the efficiency tier, and no others. */
  public JdbcFence acceptBestEffort() {
    acceptsBestEffort = true;
    return this;
  }

  /**
   * Checks the token of a guard against the mark of the resource that has the lock's name. Until
   * the transaction ends, no other token of this resource passes.
   *
   * @throws FenceRefusedException if the token is out of date
   * @throws holdfast.client.errors.LostException if the guard itself knows that the lock is lost
   */
  public void check(Guard guard) throws SQLException {
    check(guard.name(), guard.fence());
  }

  /** As {@link #check(Guard)}, for a token in full form that another program sent. */
  public void check(String resource, String fence) throws SQLException {
    if (connection.getAutoCommit()) {
      throw new IllegalStateException(
          "the check and the write must be one transaction: call setAutoCommit(false) first");
    }
    String query = "SELECT holdfast.check_fence(?, ?, ?)";
    try (PreparedStatement statement = connection.prepareStatement(query)) {
      statement.setString(1, resource);
      statement.setString(2, fence);
      statement.setBoolean(3, acceptsBestEffort);
      statement.execute();
    } catch (SQLException error) {
      Kind kind = error.getSQLState() == null ? null : KINDS.get(error.getSQLState());
      if (kind == null) {
        throw error;
      }
      String words = String.valueOf(error.getMessage());
      Matcher highest = HIGHEST.matcher(words);
      Long number = highest.find() ? Long.valueOf(highest.group(1)) : null;
      FenceRefusedException refused =
          new FenceRefusedException(kind, words.lines().findFirst().orElse(""), number);
      refused.initCause(error);
      throw refused;
    }
  }

  /** Creates schema, table and functions. It can be run again. The caller commits. */
  public void migrate() throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(migration());
    }
  }

  /** The statements of {@link #migrate}, for tools that migrate databases. */
  public static String migration() {
    try (InputStream content = JdbcFence.class.getResourceAsStream("postgres.sql")) {
      return new String(content.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}

package holdfast.client.fence;

import java.sql.Connection;

/** Resources that check tokens. */
public final class Fences {
  private Fences() {}

  /** PostgreSQL, by a connection in whose transaction the writes stand. */
  public static JdbcFence jdbc(Connection connection) {
    return new JdbcFence(connection);
  }
}

package holdfast.client;

import holdfast.client.core.Hold;
import java.util.List;

/** The leadership: a held lock whose token is the epoch. */
public final class Leadership extends Guard {
  Leadership(Engine engine, List<Hold> holds) {
    super(engine, holds);
  }

  /** The token. It throws once the leadership may have ended. */
  public long epoch() {
    return token();
  }

  /** Steps down. */
  public Released resign() {
    return release();
  }
}

package holdfast.client;

import holdfast.client.core.Hold;
import java.util.List;

/** Several held locks. */
public final class GuardAll extends HeldLocks {
  GuardAll(Engine engine, List<Hold> holds) {
    super(engine, holds);
  }

  /** The names, in the order in which the locks were asked for. */
  public List<String> names() {
    return holds().stream().map(Hold::name).toList();
  }

  /** The fencing tokens, in the order of the names. */
  public List<Long> tokens() {
    check();
    return holds().stream().map(hold -> hold.terms().token()).toList();
  }

  /** The tokens in full form, in the order of the names. */
  public List<String> fences() {
    check();
    return holds().stream().map(hold -> hold.terms().fence()).toList();
  }

  /** The token of one of the locks. */
  public long token(String name) {
    return tokens().get(names().indexOf(name));
  }

  /** Releases the locks. */
  public List<Released> release() {
    return releaseAll();
  }
}

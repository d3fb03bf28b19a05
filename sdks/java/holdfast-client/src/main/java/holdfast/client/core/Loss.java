package holdfast.client.core;

import holdfast.client.errors.LossReason;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** The first reason for which a hold, or one of several that are held together, was lost. */
public final class Loss {
  private volatile LossReason reason;
  private List<Consumer<LossReason>> callbacks = new ArrayList<>();

  /** Null as long as nothing was lost. */
  public LossReason reason() {
    return reason;
  }

  /** Only the first reason counts. */
  public void report(LossReason reported) {
    List<Consumer<LossReason>> told;
    synchronized (this) {
      if (reason != null) {
        return;
      }
      reason = reported;
      told = callbacks;
      callbacks = List.of();
    }
    told.forEach(callback -> callback.accept(reported));
  }

  /** The callback must be quick: it is called within the session, or by a guard. */
  public void whenReported(Consumer<LossReason> callback) {
    synchronized (this) {
      if (reason == null) {
        callbacks.add(callback);
        return;
      }
    }
    callback.accept(reason);
  }
}

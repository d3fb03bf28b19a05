package holdfast.client.core;

import holdfast.client.errors.HoldfastException;
import java.util.function.Supplier;

/** What a request came to. Its error is made in the thread of the caller, whose stack it shows. */
public final class Outcome {
  private final Object value;
  private final Supplier<? extends HoldfastException> error;

  private Outcome(Object value, Supplier<? extends HoldfastException> error) {
    this.value = value;
    this.error = error;
  }

  static Outcome of(Object value) {
    return new Outcome(value, null);
  }

  /** Success without a value. */
  public static Outcome done() {
    return new Outcome(null, null);
  }

  public static Outcome error(Supplier<? extends HoldfastException> error) {
    return new Outcome(null, error);
  }

  /** The value, or the error that is thrown. */
  public Object get() {
    if (error != null) {
      throw error.get();
    }
    return value;
  }

  /** Null if there is none. */
  public HoldfastException error() {
    return error == null ? null : error.get();
  }
}

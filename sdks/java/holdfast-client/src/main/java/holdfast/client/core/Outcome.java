package holdfast.client.core;

import holdfast.client.errors.HoldfastException;
import holdfast.v1.Failure;
import java.util.function.Supplier;

/** What a request came to. Its error is made in the thread of the caller, whose stack it shows. */
public final class Outcome {
  private final Object value;
  private final Supplier<? extends HoldfastException> error;
  private final Failure refusal;

  private Outcome(Object value, Supplier<? extends HoldfastException> error, Failure refusal) {
    this.value = value;
    this.error = error;
    this.refusal = refusal;
  }

  static Outcome of(Object value) {
    return new Outcome(value, null, null);
  }

  /** Success without a value. */
  public static Outcome done() {
    return new Outcome(null, null, null);
  }

  public static Outcome error(Supplier<? extends HoldfastException> error) {
    return new Outcome(null, error, null);
  }

  /** The cluster refused the request. */
  static Outcome refused(Failure refusal) {
    return new Outcome(null, Failures.rejected(refusal), refusal);
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

  /** With what the cluster refused the request; null if it did not. */
  public Failure refusal() {
    return refusal;
  }
}

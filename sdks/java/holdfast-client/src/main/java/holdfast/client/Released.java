package holdfast.client;

import holdfast.v1.ReleaseOutcome;
import java.util.Locale;

/** What a release led to. */
public enum Released {
  RELEASED,
  /** The lock is held by another session, or the token was never this session's. */
  NOT_OWNER,
  ALREADY_RELEASED,
  /** The hold had ended on its own before the release came. */
  EXPIRED,
  /** An outcome that this version does not know. */
  UNSPECIFIED;

  static Released of(ReleaseOutcome outcome) {
    return switch (outcome) {
      case RELEASE_OUTCOME_RELEASED -> RELEASED;
      case RELEASE_OUTCOME_NOT_OWNER -> NOT_OWNER;
      case RELEASE_OUTCOME_ALREADY_RELEASED -> ALREADY_RELEASED;
      case RELEASE_OUTCOME_EXPIRED -> EXPIRED;
      case RELEASE_OUTCOME_UNSPECIFIED, UNRECOGNIZED -> UNSPECIFIED;
    };
  }

  /** The name that all libraries share. */
  public String code() {
    return name().toLowerCase(Locale.ROOT);
  }
}

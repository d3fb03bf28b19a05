package holdfast.client.core;

import holdfast.client.errors.LossReason;

/**
 * What a frame means for the stream it came on. Of several the one with the highest rank counts.
 */
record Verdict(Kind kind, String leader, String words, LossReason reason) {
  enum Kind {
    GO_ON,
    MOVE,
    SESSION_LOST,
    CLOSED
  }

  static final Verdict GO_ON = new Verdict(Kind.GO_ON, "", "", null);
  static final Verdict CLOSED = new Verdict(Kind.CLOSED, "", "", null);

  static Verdict move(String leader, String words) {
    return new Verdict(Kind.MOVE, leader, words, null);
  }

  static Verdict sessionLost(LossReason reason) {
    return new Verdict(Kind.SESSION_LOST, "", "", reason);
  }

  Verdict strongerOf(Verdict other) {
    return other.rank() > rank() ? other : this;
  }

  private int rank() {
    return switch (kind) {
      case GO_ON -> 0;
      case MOVE -> leader.isEmpty() ? 1 : 2;
      // What an answer was refused with ranks below a notice of the same frame, which tells more.
      case SESSION_LOST -> reason == LossReason.SESSION_EXPIRED ? 3 : 4;
      case CLOSED -> 5;
    };
  }
}

package holdfast.client;

import holdfast.v1.ElectionServiceGrpc;
import holdfast.v1.EventPosition;
import holdfast.v1.Leader;
import holdfast.v1.ObserveRequest;
import holdfast.v1.ObserveResponse;
import java.util.Queue;

/**
 * Who leads: the leader of the moment first, then each leader, each value and each vacancy, once
 * and in order.
 */
public final class Observation extends Feed<ObserveRequest, ObserveResponse, Observation.Change> {
  /** A change of an election. */
  public sealed interface Change {
    /**
     * It leads from now on, or has another value.
     *
     * @param value what it shows
     * @param epoch the token of its leadership
     * @param session the public id of its session
     */
    record Led(String value, long epoch, String session) implements Change {}

    /** There is no leader. */
    record Vacant() implements Change {}

    /** Leaders may have come and gone unseen. The present one is told next. */
    record Missed() implements Change {}
  }

  private final String name;
  private EventPosition position;
  private long epochTold;

  Observation(Engine engine, String name) {
    super(engine, ElectionServiceGrpc.getObserveMethod());
    this.name = name;
  }

  @Override
  ObserveRequest request() {
    ObserveRequest.Builder request = ObserveRequest.newBuilder().setName(name);
    if (position != null) {
      request.setAfter(position).setAfterEpoch(epochTold);
    }
    return request.build();
  }

  @Override
  boolean canGoOn() {
    return true;
  }

  @Override
  void take(ObserveResponse told, Queue<Change> added) {
    if (told.hasPosition()) {
      position = told.getPosition();
    }
    switch (told.getChangeCase()) {
      case LEADER -> {
        Leader leader = told.getLeader();
        epochTold = leader.getEpoch();
        String value = leader.getValue().toStringUtf8();
        added.add(new Change.Led(value, epochTold, leader.getPublicSessionId()));
      }
      case VACANCY -> {
        epochTold = 0;
        added.add(new Change.Vacant());
      }
      case CHANGE_NOT_SET -> {}
    }
  }

  @Override
  void restart(String why, Queue<Change> added) {
    position = null;
    epochTold = 0;
    added.add(new Change.Missed());
  }
}

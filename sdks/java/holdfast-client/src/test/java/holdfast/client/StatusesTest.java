package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.v1.Failure;
import holdfast.v1.Reason;
import io.grpc.Metadata;
import io.grpc.Status;
import org.junit.jupiter.api.Test;

class StatusesTest {
  private static Metadata saying(String reason) {
    Metadata trailers = new Metadata();
    trailers.put(Metadata.Key.of("holdfast-reason", Metadata.ASCII_STRING_MARSHALLER), reason);
    return trailers;
  }

  @Test
  void a_denial_without_the_metadata_of_a_node_is_not_of_a_node_and_keeps_its_reason() {
    Metadata ofProxy = new Metadata();
    assertFalse(Statuses.isOfNode(ofProxy));
    assertFalse(Statuses.isOfNode(null));
    assertEquals(
        Reason.REASON_UNAUTHENTICATED,
        Statuses.failureOf(Status.UNAUTHENTICATED, ofProxy).getReason());
    assertTrue(Statuses.isOfNode(saying("credential_expired")));
    assertEquals(
        Reason.REASON_CREDENTIAL_EXPIRED,
        Statuses.failureOf(Status.UNAUTHENTICATED, saying("credential_expired")).getReason());
  }

  @Test
  void the_map_and_the_group_of_the_leader_are_read() {
    Metadata trailers = saying("wrong_group");
    trailers.put(Metadata.Key.of("holdfast-map-epoch", Metadata.ASCII_STRING_MARSHALLER), "7");
    trailers.put(Metadata.Key.of("holdfast-group", Metadata.ASCII_STRING_MARSHALLER), "3");
    Failure failure = Statuses.failureOf(Status.FAILED_PRECONDITION, trailers);
    assertEquals(Reason.REASON_WRONG_GROUP, failure.getReason());
    assertEquals(7, failure.getMapEpoch());
    assertEquals(3, failure.getGroup());
  }
}

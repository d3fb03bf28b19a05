package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.UnavailableException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.logging.LogRecord;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.Test;

/** Handlers that write JSON need fields, and not only a text. */
class LogTest {
  @Test
  void a_node_that_cannot_be_reached_is_logged_with_its_address_as_a_field() throws Exception {
    String endpoint = "127.0.0.1:" + TestPrograms.freePort();
    ClientBuilder builder = Client.builder(endpoint).requestTimeout(Duration.ofSeconds(1));
    try (LogRecords logged = new LogRecords();
        Client client = builder.build()) {
      assertThrows(HoldfastException.class, client.lock("a")::acquire);
      assertFields(logged.await("the node {0} cannot be reached"), endpoint);
    }
  }

  @Test
  void a_failing_function_for_credentials_is_logged_with_the_address_of_the_node()
      throws Exception {
    String endpoint = "127.0.0.1:" + TestPrograms.freePort();
    ClientBuilder builder = Client.builder(endpoint).requestTimeout(Duration.ofSeconds(1));
    AtomicBoolean isChecked = new AtomicBoolean();
    builder.credential(
        () -> {
          if (isChecked.getAndSet(true)) {
            throw new IllegalStateException("no {vault}");
          }
          return "token";
        });
    try (LogRecords logged = new LogRecords();
        Client client = builder.build()) {
      assertThrows(HoldfastException.class, client.lock("a")::acquire);
      LogRecord record = logged.await("the node {0} cannot be reached");
      assertFields(record, endpoint);
      assertTrue(((String) record.getParameters()[1]).contains("no {vault}"));
    }
  }

  @Test
  void a_stream_that_breaks_is_logged_with_the_address_of_the_node() throws Exception {
    try (LogRecords logged = new LogRecords();
        TestNode node = new TestNode();
        Client client = Client.connect(node.endpoint())) {
      client.lock("a").acquire();
      node.close();
      assertFields(logged.await("the stream to the node {0} ended"), node.endpoint());
      assertThrows(UnavailableException.class, client::close);
    }
  }

  /** The record has the address, the reason, and a text of both. */
  private static void assertFields(LogRecord record, String address) {
    Object[] fields = record.getParameters();
    assertEquals(2, fields.length);
    assertEquals(address, fields[0]);
    String text = record.getMessage().replace("{0}", address).replace("{1}", (String) fields[1]);
    assertEquals(text, new SimpleFormatter().formatMessage(record));
  }
}

/**
 * Distributed locks with fencing tokens.
 *
 * <pre>{@code
 * try (Client client = Client.connect("127.0.0.1:7420");
 *     Guard guard = client.lock("order:42").waitFor(Duration.ofSeconds(10)).acquire()) {
 *   orders.pay(42, guard.fence());
 * }
 * }</pre>
 */
package holdfast.client;

/** Fencing in Redis, by the client library Jedis. */
package holdfast.jedis;

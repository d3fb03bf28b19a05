/**
 * What can go wrong. All errors of the library are a {@link
 * holdfast.client.errors.HoldfastException}.
 */
package holdfast.client.errors;

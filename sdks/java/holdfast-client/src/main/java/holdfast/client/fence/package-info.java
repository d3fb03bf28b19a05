/** Fencing: a resource refuses the late write of a holder that lost its lock. */
package holdfast.client.fence;

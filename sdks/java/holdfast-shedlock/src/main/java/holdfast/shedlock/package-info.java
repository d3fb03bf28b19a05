/** Scheduled tasks that run once in the whole cluster: a provider for ShedLock. */
package holdfast.shedlock;

/** A registry of locks for Spring Integration. */
package holdfast.spring;

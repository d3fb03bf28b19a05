//go:build !planted

package main

const canMisbehave = false

func misbehave(string) {}

//go:build planted

package main

import "holdfast/sdks/go/internal/core"

const canMisbehave = true

func misbehave(bug string) { core.Plant(core.Bug(bug)) }
